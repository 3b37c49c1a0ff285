"""``cyclescope explain``."""

from __future__ import annotations

import argparse
import sys

from cyclescope._explain import explain, overview


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="a leak pattern, a kind of growth or an out-of-memory verdict, as a report shows it "
        "(default: list all)",
    )


def run(parsed: argparse.Namespace) -> int:
    """Print one page, or the list of all."""
    try:
        page = overview() if parsed.name is None else explain(parsed.name)
    except ValueError as error:
        parsed.parser.error(str(error))
    sys.stdout.write(page)
    return 0
