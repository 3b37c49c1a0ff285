"""Is the same said of varied programs by each Python? Run by ``make test-words``.

The interpreters are those of ``tests/diagnose/test_signatures.py``; ``TEST_CASES`` says how many
programs (default: 2,000).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from diagnose.test_signatures import interpreters, package, table

CASES = os.environ.get("TEST_CASES", "2000")

__all__ = ["package"]


@pytest.mark.timeout(3600)
def test_varied_programs_are_told_in_the_same_words(package: Path) -> None:
    others = interpreters()
    assert others, "needs another Python with NumPy: `make test-matrix` makes some"
    own = table(sys.executable, "--varied", CASES, package=package)
    for python in others:
        found = table(python, "--varied", CASES, package=package)
        assert found.keys() == own.keys()
        for number, said in own.items():
            assert found[number] == said, f"program {number} on {python} and {sys.executable}"
