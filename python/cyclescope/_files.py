"""Writing files."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file such that readers see all of it or nothing, whoever else writes it."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        # A program's own names may hold lone surrogates.
        unfinished.write_text(text, encoding="utf-8", errors="backslashreplace")
        unfinished.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            unfinished.unlink()
