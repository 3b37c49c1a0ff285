"""Random programs do under a watch what they do without, to the last event.

``TEST_CASES`` says how many (default: 80); see ``compare.py`` for more of them, and for what
differs.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.marks import needs_torch
from support.processes import python

COMPARE = Path(__file__).with_name("compare.py")
CASES = int(os.environ.get("TEST_CASES", "80"))


def compare(mode: str, cases: int, *more: str) -> subprocess.CompletedProcess[str]:
    return python(str(COMPARE), "--mode", mode, "--seeds", str(cases), *more)


@pytest.mark.sampled(6)
@pytest.mark.timeout(max(300, CASES // 10))
@pytest.mark.parametrize("busy", [False, True], ids=["alone", "busy"])
@pytest.mark.parametrize("mode", ["watch", "watch-cuda", "beside"])
def test_a_watch_changes_nothing(mode: str, busy: bool) -> None:
    done = compare(mode, CASES, *["--busy"] * busy)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(max(300, CASES // 10))
@needs_torch
def test_a_watch_changes_nothing_for_tensors() -> None:
    done = compare("watch", max(CASES // 4, 1), "--torch")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("mode", ["bare-again", "callback"])
def test_programs_log_the_same_each_time(mode: str) -> None:
    """The comparison says nothing unless they do, also with a callback that does nothing."""
    done = compare(mode, min(CASES, 2000))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.sampled(4)
@pytest.mark.parametrize("mutant", ["saves", "flags", "holds", "threshold"])
def test_harm_is_found(mutant: str) -> None:
    done = compare(f"mutant-{mutant}", 200)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the first is" in done.stdout
    assert f"+++ mutant-{mutant}" in done.stdout
    assert not done.stderr
