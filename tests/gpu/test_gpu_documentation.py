"""What the documentation shows of ``memory()`` on a GPU is what its program prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

DOCS = Path(__file__).parents[2] / "docs"


def plain(text: str) -> str:
    """The words, whatever the numbers, their units and the breaks of lines."""
    return re.sub(r"\d[\d,.]*( bytes| [KMG]iB)?", "0", " ".join(text.split()))


def test_the_rows_of_memory_are_printed_as_shown() -> None:
    page = (DOCS / "live-memory.md").read_text("utf-8").partition("\n## All memory of a GPU\n")[2]
    shown = page.partition("```text\n")[2].partition("```")[0]
    done = subprocess.run(
        [sys.executable, DOCS / "memory.py"],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    for row in shown.strip().split("\n\n"):
        assert plain(row) in plain(done.stdout), done.stdout
