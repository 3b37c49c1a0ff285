"""Atomic file writes."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically: readers see the whole file or none of it."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        # Names of the program may contain lone surrogates.
        unfinished.write_text(text, encoding="utf-8", errors="backslashreplace")
        unfinished.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            unfinished.unlink()
