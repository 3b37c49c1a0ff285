"""The command ``cyclescope``, also as ``python -m cyclescope``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from cyclescope._explain import explain, overview


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the status to exit with is 0, or 2 if it was asked for what is not there."""
    parser = argparse.ArgumentParser(
        prog="cyclescope",
        description="Finds the reference cycles that hold GPU memory in Python programs.",
    )
    commands = parser.add_subparsers(title="commands", required=True)
    command = commands.add_parser("explain", help="explain a pattern of leaks, or list them all")
    command.add_argument("pattern", nargs="?", help="its name, as a leak trace has it")
    pattern: str | None = parser.parse_args(argv).pattern
    try:
        page = overview() if pattern is None else explain(pattern)
    except ValueError as error:
        command.error(str(error))
    sys.stdout.write(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
