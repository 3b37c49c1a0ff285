"""``cyclescope merge``."""

from __future__ import annotations

import argparse
from pathlib import Path

from cyclescope import _native
from cyclescope._cli import progress
from cyclescope._cli.common import (
    FORMATS,
    INCOMPLETE,
    STANDARD,
    add_format,
    check_output,
    merged,
    read_reports,
    rendered,
    write,
)
from cyclescope._cli.output import out


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="reports as JSON, one per process: files, folders, glob patterns such as "
        "'reports/*.json', or - for standard input",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help=f"output file, or - for standard output; the extension sets the format: "
        f"{', '.join(FORMATS)} (default: print a table)",
    )
    add_format(parser, "JSON on standard output")


def run(parsed: argparse.Namespace) -> int:
    """Merge the reports."""
    check_output(parsed, parsed.output)
    unreadable: list[Path] = []
    reports = read_reports(parsed, parsed.files, parsed.output, unreadable)
    report = merged(parsed, reports, _native.merge_processes)
    if parsed.output is None and parsed.format is None:
        progress.done()
        out(report.table_of_processes())
        return INCOMPLETE if unreadable else 0
    progress.say("rendering")
    output = parsed.output or STANDARD
    write(parsed, output, rendered(parsed, output, report))
    return INCOMPLETE if unreadable else 0
