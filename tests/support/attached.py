"""Programs that another process looks into."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from cyclescope._attach.request import AttachError, ask
from support.nodes import SOURCE

lets_in = pytest.mark.skipif(
    sys.version_info < (3, 14), reason="Python 3.14 and later let another process in"
)

SECONDS = 60.0
"""How long a test waits for what comes at once on an idle machine."""

HEAD = f"""
import ctypes, gc, os, select, signal, sys, threading, time
import numpy
{SOURCE}
def wait():
    print("ready", flush=True)
    while not select.select([0], [], [], 0.005)[0]:
        pass  # a safe point
    os.read(0, 1)
"""


class Program:
    """A program that another process looks into."""

    def __init__(
        self, folder: Path, source: str, environment: Mapping[str, str], options: list[str]
    ) -> None:
        self._output, self._errors = folder / "output", folder / "errors"
        paths = [each for each in sys.path if each and not (Path(each) / "cyclescope").exists()]
        kept = {key: text for key, text in os.environ.items() if not key.startswith("CYCLESCOPE_")}
        self._read = 0
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, *options, "-c", HEAD + textwrap.dedent(source)],
                env={**kept, "PYTHONPATH": os.pathsep.join(paths), **environment},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=errors,
                cwd=folder,
            )
        self.pid = self.process.pid

    @property
    def errors(self) -> str:
        return self._errors.read_text("utf-8")

    def line(self) -> str:
        """The next line that it prints."""
        deadline = time.monotonic() + SECONDS
        while "\n" not in (rest := self._output.read_text("utf-8")[self._read :]):
            assert self.process.poll() is None, self.errors
            assert time.monotonic() < deadline, self.errors
            time.sleep(0.01)
        text = rest.partition("\n")[0]
        self._read += len(text) + 1
        return text

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()


@contextmanager
def program(
    folder: Path,
    source: str,
    environment: Mapping[str, str] | None = None,
    options: list[str] | None = None,
) -> Iterator[Program]:
    running = Program(folder, source, environment or {}, options or [])
    try:
        assert running.line() == "ready"
        yield running
    finally:
        running.process.kill()
        running.process.wait()
        assert running.process.stdin is not None
        running.process.stdin.close()


def attach(pid: int | str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cyclescope", "attach", str(pid), *options],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def asked(pid: int, *what: str, **more: object) -> dict[str, str]:
    given = {"timeout": SECONDS, "devices": ["any"], "redact": False, "name": None} | more
    return ask(pid, list(what), **given)  # type: ignore[arg-type]


# A waiting program stops at each step of a busy loop, as it does between two steps of a training.
LEAKY = """
gc.disable()
class Trainer:
    __slots__ = ("kept", "__dict__")
    default = [numpy.ones(10)]
history = [numpy.ones(2**20, numpy.uint8) for _ in range(3)]
trainer = Trainer()
trainer.kept = {"best": numpy.ones(7), 3: numpy.ones(9)}
trainer.model = numpy.ones(5)
Node()
def train():
    batch = numpy.ones(3)
    print("ready", flush=True)
    while True:
        time.sleep(0.005)
train()
"""


def refusal(pid: int, **more: object) -> str:
    with pytest.raises(AttachError) as raised:
        asked(pid, "heap", **more)
    return str(raised.value)
