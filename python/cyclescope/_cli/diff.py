"""``cyclescope diff``."""

from __future__ import annotations

import argparse

from cyclescope import _native
from cyclescope._cli import progress
from cyclescope._cli.common import (
    STANDARD,
    add_json,
    colored,
    fail,
    merged,
    print_json,
    read_reports,
)
from cyclescope._cli.output import out
from cyclescope._native import CycleReport, Leak

RED, YELLOW, GREEN = "31", "33", "32"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = (
        "Exits with status 1 if a leak is new or has grown, otherwise 0. `cyclescope report NEW "
        "--against OLD -o page.html` writes the page. A leak is also gone if the new run could not "
        "see it: the notes of the new report, below the table, say so."
    )
    for name in ("old", "new"):
        parser.add_argument(
            name,
            metavar=name.upper(),
            help="reports as JSON: a file, a folder, a glob pattern, or -",
        )
    add_json(parser)


def run(parsed: argparse.Namespace) -> int:
    """Compare leaks by signature, and by outline where lines have moved."""
    if parsed.old == parsed.new == STANDARD:
        fail(parsed, "standard input can be read only once: name a file for one of the two")
    earlier = _report(parsed, parsed.old)
    later = _report(parsed, parsed.new)
    progress.done()
    again = later.known_again(earlier)
    old = {leak.signature: leak for leak in earlier.leaks}
    appeared = [leak for leak in later.leaks if leak.signature not in again]
    gone = [leak for leak in earlier.leaks if leak.signature not in again.values()]
    both = [(old[again[b.signature]], b) for b in later.leaks if b.signature in again]
    grown = [(a, b) for a, b in both if b.bytes_held > a.bytes_held]
    status = 1 if appeared or grown else 0
    if parsed.json:
        print_json(
            {
                "new": list(map(_facts, appeared)),
                "grown": [_facts(b) | {"bytes_held_before": a.bytes_held} for a, b in grown],
                "gone": list(map(_facts, gone)),
                "unchanged_or_smaller": len(both) - len(grown),
                "notes": later.notes,
            }
        )
        return status
    for leak in appeared:
        out(colored(f"new    {_line(leak)}", RED))
    for before, after in grown:
        out(colored(f"grown  {_line(after)}, was {_native.human_bytes(before.bytes_held)}", YELLOW))
    for leak in gone:
        out(colored(f"gone   {_line(leak)}", GREEN))
    out(
        f"{len(appeared)} new, {len(grown)} grown, {len(gone)} gone, "
        f"{len(both) - len(grown)} unchanged or smaller"
    )
    for note in later.notes:
        out(f"of the new report: {note}")
    return status


def _report(parsed: argparse.Namespace, name: str) -> CycleReport:
    return merged(parsed, read_reports(parsed, [name]))


def _line(leak: Leak) -> str:
    return f"{leak.signature}  {leak.summary}  {_native.human_bytes(leak.bytes_held)}"


def _facts(leak: Leak) -> dict[str, object]:
    return {
        "signature": leak.signature,
        "summary": leak.summary,
        "pattern": leak.pattern,
        "advice": leak.advice,
        "bytes_held": leak.bytes_held,
        "count": leak.count,
    }
