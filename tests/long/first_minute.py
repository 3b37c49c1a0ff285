"""From a bare Python to the first warning and its page: the README's three lines, timed.

Needs the network and half a minute: ``make test-workflow``, which builds the wheel that stands in
for the package index.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
WHEELS = ROOT / ".wheel"
SECONDS = 60

LEAK = """
import gc
import numpy

class Trainer:
    def __init__(self):
        self.activations = numpy.zeros(2**21, numpy.uint8)
        self.on_step = lambda: self.activations.sum()

Trainer().on_step()
gc.collect()
"""


def three_lines() -> str:
    text = (ROOT / "README.md").read_text("utf-8")
    (lines,) = re.findall(r"^## Three lines\n\n```python\n(.*?)^```$", text, re.M | re.S)
    assert len(lines.splitlines()) == 3
    return str(lines)


def test_from_nothing_to_a_warning_and_a_page(tmp_path: Path) -> None:
    assert list(WHEELS.glob("cyclescope-*.whl")), "run `make wheel` first"
    (tmp_path / "train.py").write_text(three_lines() + LEAK, "utf-8")
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    kept |= {"PIP_FIND_LINKS": str(WHEELS), "CYCLESCOPE_DEVICES": "any"}
    kept |= {name: value for name, value in os.environ.items() if name.startswith("PIP_INDEX")}
    python = tmp_path / "environment" / "bin" / "python"
    began = time.monotonic()
    for command in (
        [sys.executable, "-m", "venv", str(tmp_path / "environment")],
        [str(python), "-m", "pip", "install", "--quiet", "cyclescope", "numpy"],
        [str(python), "train.py"],
    ):
        done = subprocess.run(
            command, cwd=tmp_path, env=kept, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    seconds = time.monotonic() - began
    print(f"from a bare Python to the first warning and its page: {seconds:.1f} s")
    assert "2.0 MiB held by a reference cycle" in done.stderr
    assert "Fix:  train.py:" in done.stderr.replace(f"{tmp_path}/", "")
    (page,) = tmp_path.glob("leaks/*.html")
    assert str(page) in done.stderr
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")
    assert seconds < SECONDS
