"""The command ``cyclescope`` in a process of its own, and a program that leaks under it."""

from __future__ import annotations

import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path

from support.nodes import SOURCE

Command = Callable[..., subprocess.CompletedProcess[str]]

LEAKY = f"""
import sys, numpy
{SOURCE}
Node()
print("arguments", sys.argv[1:])
"""


def program(folder: Path, source: str = LEAKY, name: str = "leaky.py") -> Path:
    """Writes a program into a folder."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(textwrap.dedent(source), encoding="utf-8")
    return file


def report_of(command: Command, folder: Path, source: str = LEAKY, name: str = "report") -> Path:
    """Runs a program, and saves a report of its leaks."""
    program(folder, source)
    done = command("run", "--devices=any", f"--output={name}.json", "leaky.py")
    assert done.returncode == 0, done.stderr
    return folder / f"{name}.json"
