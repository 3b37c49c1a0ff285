"""Programs that run out of memory, one for each verdict, run as a user runs them.

``docs/explained.py`` puts each program into a page, with the beginning of its post-mortem, which is
in ``verdicts/``. To approve what has changed, run with ``APPROVE_TRACES=1``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cyclescope import _native

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "fixtures" / "oom"
APPROVED = Path(__file__).parent / "verdicts"
VERDICTS = [name for name, _ in dict(_native.explanations())["Out of memory"]]
SHOWN = 3
"""Paragraphs that are compared: the verdict, the advice and the device's numbers."""


@pytest.mark.parametrize("verdict", VERDICTS)
def test_the_post_mortem_reads_as_approved(verdict: str, tmp_path: Path) -> None:
    program = f"{verdict.replace('-', '_')}.py"
    options = ["--oom", "--growth", "--report-dir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "cyclescope", "run", *options, program],
        cwd=PROGRAMS,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "OutOfMemoryError" in done.stderr, done.stderr
    texts = [path.read_text("utf-8") for path in sorted(tmp_path.glob("*.txt"))]
    (text,) = [each for each in texts if each.startswith(f"{verdict}: ")]
    paragraphs = [part for part in text.split("\n\n")[:SHOWN] if not part.endswith(":")]
    said = "\n\n".join(paragraphs).rstrip().replace(f"{PROGRAMS}{os.sep}", "") + "\n"
    approved = APPROVED / f"{verdict}.txt"
    if os.environ.get("APPROVE_TRACES"):
        APPROVED.mkdir(exist_ok=True)
        approved.write_text(said, "utf-8")
    assert without_numbers(said) == without_numbers(approved.read_text("utf-8"))


def without_numbers(text: str) -> str:
    return " ".join(re.sub(r"\d[\d,.]* ?(?:[KMGT]iB|bytes)?", "0", text).split())
