"""Draws ``docs/leak.svg``, the picture in the README: ``fixtures/awaitable_leak.py``."""

from __future__ import annotations

import sys
from pathlib import Path

import cyclescope

root = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(root / "fixtures"))

import awaitable_leak  # noqa: E402

awaitable_leak.leak("cpu", 64)
report = cyclescope.find_tensor_cycles(devices="any")
drawing = report.leaks[0].to_svg().replace(f"{root}/", "")
(root / "docs" / "leak.svg").write_text(drawing, encoding="utf-8")
