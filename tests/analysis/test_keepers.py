"""What is named as the owner of an object or of memory is deleted, and what is freed is measured.

``TEST_CASES`` says how many random programs are tried (default: 60 of each kind).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.marks import needs_torch

CASES = int(os.environ.get("TEST_CASES", "60"))
TESTS = Path(__file__).parents[1]


def judged(program: str, *arguments: str, cases: int = CASES) -> int:
    """What a program of ``support`` prints, in a process of its own."""
    command = [sys.executable, "-W", "ignore", "-m", f"support.{program}", "0", str(cases), *arguments]
    path = os.pathsep.join([str(TESTS), *filter(None, sys.path)])
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    return int(done.stdout)


def test_deleting_what_is_named_frees_the_object_and_nothing_less_does() -> None:
    # The programs are such that several are needed in many of them.
    assert judged("random_owners") > CASES // 5


def test_deleting_the_variable_of_a_row_frees_what_the_row_says() -> None:
    assert judged("random_heaps") > CASES // 2


@needs_torch
def test_deleting_the_variable_of_a_row_with_tensors_and_graphs() -> None:
    cases = CASES // 10 or 1
    assert judged("random_heaps", "torch", cases=cases) > cases // 2
