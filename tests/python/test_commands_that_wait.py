"""The commands of the documentation that wait for something, run as they are shown.

Only numbers and names differ. ``attach`` is run where Python lets another process in;
``make test-matrix`` has all versions.
"""

from __future__ import annotations

import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from support import shown
from support.marks import needs_torch

DOCS = Path(__file__).parents[2] / "docs"
SECONDS = 120
"""How long a test waits for what comes at once on an idle machine."""

lets_in = pytest.mark.skipif(
    sys.version_info < (3, 14), reason="Python 3.14 and later let another process in"
)

# Each rank says which process it is, and is in the middle of something.
JOB = """
import os, pathlib, time
import cyclescope
pathlib.Path(f"rank{os.environ['RANK']}").write_text(str(os.getpid()))
while not pathlib.Path("end").exists():
    time.sleep(0.01)
"""

TRAINING = """
import gc, time
import numpy
import cyclescope

class Trainer:
    def __init__(self):
        self.batch = numpy.ones(2**20, numpy.uint8)
        self.on_step = lambda: self.batch.sum()

def train():
    global history, batches
    gc.disable()
    history = [numpy.ones(2**20, numpy.uint8) for _ in range(3)]
    batches = [numpy.ones(100)]
    Trainer()
    open("ready", "w").close()
    while True:
        history.append(numpy.ones(2**16, numpy.uint8))
        time.sleep(0.01)
"""


@contextmanager
def started(folder: shown.Folder, command: str) -> Iterator[subprocess.Popen[str]]:
    """A command that runs meanwhile."""
    process = folder.start(command)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(file: Path) -> str:
    """What a file says, once it is there and says something."""
    deadline = time.monotonic() + SECONDS
    while not file.exists() or not file.stat().st_size:
        assert time.monotonic() < deadline, file
        time.sleep(0.02)
    return file.read_text("utf-8")


def block(page: str, heading: str) -> list[str]:
    """The lines of the first ``text`` block below a heading."""
    text = f"\n{(DOCS / page).read_text('utf-8')}".partition(f"\n{heading}\n")[2]
    return text.partition("```text\n")[2].partition("\n```")[0].splitlines()


def commands(page: str, heading: str) -> list[str]:
    """Its commands, without the words about them."""
    lines = (line for line in block(page, heading) if line.startswith("$ "))
    return [line.removeprefix("$ ").partition("  #")[0].rstrip() for line in lines]


@needs_torch
def test_a_signal_is_answered_as_shown(tmp_path: Path) -> None:
    start, kill, answer = block("attach.md", "## A signal")
    folder = shown.Folder(tmp_path)
    (folder.path / "train.py").write_text(JOB)
    start = start.removeprefix("$ ").replace(
        "--nproc-per-node 8", "--standalone --nproc-per-node 4"
    )
    with started(folder, start) as job:
        pids = [wait_for(folder.path / f"rank{rank}") for rank in range(4)]
        folder.run(kill.removeprefix("$ ").replace("4242", pids[3]))
        name = answer.rpartition("/")[2].replace("node7", socket.gethostname())
        name = name.replace("4242", pids[3])
        wait_for(folder.path / "reports" / name)
        (folder.path / "end").touch()
        _, said = job.communicate(timeout=SECONDS)
        expected = answer.replace("reports/", f"{folder.path}/reports/").rpartition("/")[0]
        assert f"{expected}/{name}\n" in said


def test_reports_are_served_as_shown(tmp_path: Path) -> None:
    (command,) = (
        it for it in commands("command-line.md", "# Command line and settings") if "serve" in it
    )
    folder = shown.Folder(tmp_path)
    leaks = folder.path / shlex.split(command)[-1]
    leaks.mkdir()
    (leaks / "page.html").write_text("<!doctype html><title>A leak</title>")
    with started(folder, command) as server:
        assert server.stdout is not None
        address = re.search(r"http://127\.0\.0\.1:\d+/\S+/", server.stdout.readline())
        assert address is not None
        with urlopen(f"{address[0]}page/page.html") as page:
            assert b"A leak" in page.read()
        server.send_signal(signal.SIGINT)
        assert server.wait(SECONDS) in (0, 130)


# By its option: whether an answer is about the cycle, and about what is alive.
ANSWERS = {
    None: (True, True),
    "--cycles": (True, False),
    "--why": (False, True),
    "--growth": (False, True),
    "--watch": (False, False),
}


@lets_in
@pytest.mark.parametrize("command", commands("attach.md", "## From outside"))
def test_a_running_program_is_inspected_as_shown(tmp_path: Path, command: str) -> None:
    folder = shown.Folder(tmp_path)
    (folder.path / "train.py").write_text(TRAINING)
    with started(folder, "python -c 'import train; train.train()'") as program:
        deadline = time.monotonic() + SECONDS
        while not (folder.path / "ready").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        command = command.replace("4242", str(program.pid)).replace("--growth 60", "--growth 1")
        said = folder.run(command)
        option = next((word for word in command.split() if word.startswith("--")), None)
        assert ("Trainer" in said, "history" in said) == ANSWERS[option], said
        assert ("is watched" in said) == (option == "--watch")
        assert program.poll() is None
