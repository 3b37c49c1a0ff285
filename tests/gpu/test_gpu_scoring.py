"""The whole score with CUDA tensors: every fixture, bytes by the allocator, cuts made for real."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.gpu


def test_every_fixture_passes_every_check() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "support.scoring", "--device", "cuda:0"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    print(done.stdout)  # the summary, with `pytest -s`; where it fails, what is wrong
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 skipped" in done.stdout
