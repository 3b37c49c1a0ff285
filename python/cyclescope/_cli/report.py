"""``cyclescope report``."""

from __future__ import annotations

import argparse
from pathlib import Path

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
        help="reports as JSON: files, folders, glob patterns, or - for standard input",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help=f"output file, or - for standard output; the extension sets the format: "
        f"{', '.join(FORMATS)} (default: print text)",
    )
    parser.add_argument(
        "--against",
        metavar="OLD",
        help="earlier reports as JSON (a file, a folder, a glob pattern): say which leaks are new, "
        "have grown, or are gone",
    )
    add_format(parser, "JSON on standard output")


def run(parsed: argparse.Namespace) -> int:
    """Print the report, or convert it."""
    check_output(parsed, parsed.output)
    unreadable: list[Path] = []
    report = merged(parsed, read_reports(parsed, parsed.files, parsed.output, unreadable))
    if parsed.against is not None:
        report = report.against(merged(parsed, read_reports(parsed, [parsed.against])))
    progress.say("rendering")
    if parsed.output is None and parsed.format is None:
        text = report.to_text()
        progress.done()
        out(text)
    else:
        output = parsed.output or STANDARD
        write(parsed, output, rendered(parsed, output, report))
    return INCOMPLETE if unreadable else 0
