"""What a long command is at, in one line of the terminal that is gone when it is done."""

from __future__ import annotations

import os
import sys

_shown = False


def say(text: str) -> None:
    """Show what is being done now, in place of what was shown; nothing where no terminal is."""
    global _shown
    if not sys.stderr.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return
    try:
        width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        width = 80
    # File names may hold anything, and must neither break the line nor command the terminal.
    line = "".join(char if char.isprintable() else "?" for char in text)
    sys.stderr.write(f"\r{line[: width - 1]}\x1b[K")
    sys.stderr.flush()
    _shown = True


def done() -> None:
    """Take the line away, before anything else is printed."""
    global _shown
    if _shown:
        _shown = False
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
