"""Programs that another process looks into."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from cyclescope._attach.request import AttachError, ask
from support.nodes import SOURCE
from support.processes import python
from support.started import SECONDS, Started

lets_in = pytest.mark.skipif(
    sys.version_info < (3, 14), reason="Python 3.14 and later let another process in"
)

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


class Program(Started):
    """A program that another process looks into."""

    def __init__(
        self, folder: Path, source: str, environment: Mapping[str, str], options: list[str]
    ) -> None:
        paths = [each for each in sys.path if each and not (Path(each) / "cyclescope").exists()]
        environment = {"PYTHONPATH": os.pathsep.join(paths), **environment}
        super().__init__(folder, HEAD + textwrap.dedent(source), environment, options)


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
        running.kill()


def attach(pid: int | str, *options: str) -> subprocess.CompletedProcess[str]:
    return python("-m", "cyclescope", "attach", str(pid), *options, timeout=SECONDS)


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
