"""The whole score with CUDA tensors: every fixture, bytes by the allocator, cuts made for real."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

SCORING = Path(__file__).parent.parent / "scoring.py"


def test_every_fixture_passes_every_check() -> None:
    done = subprocess.run(
        [sys.executable, str(SCORING), "--device", "cuda:0"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    print(done.stdout)  # the summary, with `pytest -s`; where it fails, what is wrong
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 skipped" in done.stdout
