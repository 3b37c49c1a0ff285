"""Atomic file writes, and what is said if one fails."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from pathlib import Path


def reason(error: OSError) -> str:
    """Why a file could not be read or written, with its name: ``leaks: Permission denied``."""
    known = error.strerror is not None and error.filename is not None
    return f"{error.filename}: {error.strerror}" if known else str(error)


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically: readers see the whole file or none of it."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        # Names of the program may contain lone surrogates.
        unfinished.write_text(text, encoding="utf-8", errors="backslashreplace")
        unfinished.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            unfinished.unlink()


def check_writable(folder: Path) -> None:
    """Create a folder for reports, if it does not exist.

    Raises:
        OSError: If files cannot be written there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise type(error)(
            error.errno,
            f"report_dir is not writable ({error.strerror}); "
            "pass another folder, or none to use a temporary one",
            str(folder),
        ) from None
