"""``cyclescope explain``."""

from __future__ import annotations

import argparse
import sys

from cyclescope._explain import explain, overview


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("pattern", nargs="?", help="name of the pattern, as shown in a leak trace")


def run(parsed: argparse.Namespace) -> int:
    """Print the page of one pattern, or the list of all patterns."""
    try:
        page = overview() if parsed.pattern is None else explain(parsed.pattern)
    except ValueError as error:
        parsed.parser.error(str(error))
    sys.stdout.write(page)
    return 0
