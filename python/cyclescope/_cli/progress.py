"""A progress line on the terminal, removed when the command is done."""

from __future__ import annotations

import os
import sys

_shown = False


def say(text: str) -> None:
    """Replace the progress line. Does nothing if standard error is not a terminal."""
    global _shown
    if sys.stderr is None or not sys.stderr.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return
    try:
        width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        width = 80
    # File names may contain control characters, which must not reach the terminal.
    line = "".join(char if char.isprintable() else "?" for char in text)
    sys.stderr.write(f"\r{line[: width - 1]}\x1b[K")
    sys.stderr.flush()
    _shown = True


def done() -> None:
    """Remove the line before other output is printed."""
    global _shown
    if _shown:
        _shown = False
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
