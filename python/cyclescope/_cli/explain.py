"""``cyclescope explain``."""

from __future__ import annotations

import argparse

from cyclescope._cli.common import add_json, print_json
from cyclescope._cli.output import out
from cyclescope._explain import explain, heading, overview, sections


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="a leak pattern, a kind of growth, an out-of-memory verdict or a known leak of a "
        "library, as a report shows it (default: list all)",
    )
    add_json(parser)


def run(parsed: argparse.Namespace) -> int:
    """Print one page, or the list of all."""
    try:
        if parsed.json:
            print_json({"pages": _pages(parsed.name)})
            return 0
        page = overview() if parsed.name is None else explain(parsed.name)
    except ValueError as error:
        parsed.parser.error(str(error))
    out(page, end="")
    return 0


def _pages(name: str | None) -> list[dict[str, str]]:
    """One page in full, or all of them by name and heading."""
    if name is not None:
        page = explain(name)
        about = next(about for about, each, _ in sections() if each == name)
        return [{"name": name, "about": about, "heading": heading(page), "text": page}]
    return [
        {"name": each, "about": about, "heading": heading(page)} for about, each, page in sections()
    ]
