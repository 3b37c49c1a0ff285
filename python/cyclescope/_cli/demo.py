"""``cyclescope demo``."""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

from cyclescope._cli.common import fail
from cyclescope._cli.output import out

PROGRAM = """\
import {library}


class Trainer:
    def __init__(self):
        self.activations = {tensor}
        self.on_step = lambda: self.activations.sum()  # captures self, which holds it


for step in range(5):
    Trainer().on_step()  # each trainer should be gone after its step
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--report-dir",
        metavar="DIR",
        help="folder for the program and its report (default: a temporary folder)",
    )


def run(parsed: argparse.Namespace) -> int:
    """Write a program that leaks and run it."""
    library, tensor = _library(parsed)
    if parsed.report_dir == "":
        fail(parsed, "--report-dir is empty")
    try:
        folder = Path(parsed.report_dir or tempfile.mkdtemp(prefix="cyclescope-demo-"))
        folder.mkdir(parents=True, exist_ok=True)
        program = folder / "leaky.py"
        program.write_text(PROGRAM.format(library=library, tensor=tensor), encoding="utf-8")
    except OSError as error:
        fail(parsed, f"cannot write to {folder}: {error.strerror}")
    out(f"# {program}\n\n{program.read_text(encoding='utf-8')}")
    command = ["run", "--devices=any", f"--report-dir={folder}", "--trace", str(program)]
    out(f"$ cyclescope {' '.join(command)}\n", flush=True)
    return subprocess.run([sys.executable, "-m", "cyclescope", *command], check=False).returncode


def _library(parsed: argparse.Namespace) -> tuple[str, str]:
    if importlib.util.find_spec("torch") is not None:
        return "torch", "torch.zeros(2**20)"
    if importlib.util.find_spec("numpy") is None:
        fail(parsed, "the demo needs NumPy or PyTorch: pip install numpy (or torch)")
    return "numpy", "numpy.zeros(2**20, numpy.float32)"
