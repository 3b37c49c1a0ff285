"""What long commands show on a terminal, and what Ctrl-C leaves."""

from __future__ import annotations

import gc
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import cyclescope
from support import interrupts
from support.nodes import Node

interrupts.hear()

COMMANDS = {
    "report": ["report", "one.json", "late.json", "-o", "out.html"],
    "merge": ["merge", "one.json", "late.json", "-o", "out.html"],
    "diff": ["diff", "one.json", "late.json"],
}
SECONDS = 60


@pytest.fixture
def report(tmp_path: Path) -> str:
    """A report in a folder, beside one that has still to be written: whoever reads it waits."""
    gc.collect()
    Node()
    found = cyclescope.find_tensor_cycles(devices="any")
    assert len(found.leaks) == 1
    text = found.to_json()
    (tmp_path / "one.json").write_text(text, encoding="utf-8")
    (tmp_path / "out.html").write_text("the page of before", encoding="utf-8")
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no named pipes")
    os.mkfifo(tmp_path / "late.json")
    return text


@contextmanager
def begun(folder: Path, command: str, errors: int) -> Iterator[subprocess.Popen[str]]:
    """A command that has come to the report that is late."""
    running = subprocess.Popen(
        [sys.executable, "-m", "cyclescope", *COMMANDS[command]],
        cwd=folder,
        env=os.environ | {"TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    )
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


def shown(terminal: int, until: bytes) -> bytes:
    """What comes to a terminal until something has come."""
    text, deadline = b"", time.monotonic() + SECONDS
    while until not in text:
        ready, _, _ = select.select([terminal], [], [], max(0, deadline - time.monotonic()))
        assert ready, f"only {text!r} came"
        text += os.read(terminal, 10_000)
    return text


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ends = pty.openpty()
    yield ends
    for end in ends:
        os.close(end)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_terminal_shows_what_is_being_done_and_is_clean_again(
    tmp_path: Path, terminal: tuple[int, int], report: str, command: str
) -> None:
    ours, theirs = terminal
    with begun(tmp_path, command, theirs) as running:
        text = shown(ours, b"late.json\x1b[K")
        assert text.startswith(b"\rreading 1 of ")
        (tmp_path / "late.json").write_text(report, encoding="utf-8")
        output, _ = running.communicate(timeout=SECONDS)
    assert running.returncode == 0
    assert "\x1b[K" not in output
    os.write(theirs, b"the end")
    text += shown(ours, b"the end")
    assert text.endswith(b"\r\x1b[Kthe end")
    if command != "diff":
        assert b"writing out.html" in text
        assert (tmp_path / "out.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_pipe_gets_none_of_it(tmp_path: Path, report: str, command: str) -> None:
    with begun(tmp_path, command, subprocess.PIPE) as running:
        (tmp_path / "late.json").write_text(report, encoding="utf-8")
        _, errors = running.communicate(timeout=SECONDS)
    assert (running.returncode, errors) == (0, "")


@pytest.mark.parametrize("command", COMMANDS)
def test_ctrl_c_leaves_the_files_as_they_were(
    tmp_path: Path, terminal: tuple[int, int], report: str, command: str
) -> None:
    ours, theirs = terminal
    with begun(tmp_path, command, theirs) as running:
        text = shown(ours, b"late.json\x1b[K")
        writer = os.open(tmp_path / "late.json", os.O_WRONLY)  # once it is read from
        running.send_signal(signal.SIGINT)
        # A signal that comes just before the read does not end it, and is seen after it.
        os.close(writer)
        output, _ = running.communicate(timeout=SECONDS)
    assert running.returncode == 130
    assert output == ""
    os.write(theirs, b"the end")
    text += shown(ours, b"the end")
    assert text.endswith(b"\r\x1b[Kthe end")
    assert b"Traceback" not in text
    assert (tmp_path / "out.html").read_text(encoding="utf-8") == "the page of before"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["late.json", "one.json", "out.html"]


def test_names_cannot_command_the_terminal(
    tmp_path: Path, terminal: tuple[int, int], report: str
) -> None:
    ours, theirs = terminal
    (tmp_path / "late.json").unlink()
    (tmp_path / "one.json").rename(tmp_path / "\x1b[31m\n.json")
    subprocess.run(
        [sys.executable, "-m", "cyclescope", "merge", "."],
        cwd=tmp_path,
        env=os.environ | {"TERM": "xterm"},
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        check=True,
    )
    os.write(theirs, b"the end")
    text = shown(ours, b"the end")
    assert b"reading 1 of 1: ?[31m?.json\x1b[K" in text
