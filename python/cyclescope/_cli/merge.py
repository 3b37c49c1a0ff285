"""``cyclescope merge``."""

from __future__ import annotations

import argparse
from pathlib import Path

from cyclescope import _native
from cyclescope._cli import progress
from cyclescope._cli.common import FORMATS, check_output, merged, read_reports, write


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="reports as JSON, one per process: files, folders or glob patterns such as "
        "'reports/*.json'",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help=f"output file; the extension sets the format: {', '.join(FORMATS)} (default: print a "
        "table)",
    )


def run(parsed: argparse.Namespace) -> int:
    """Merge the reports."""
    check_output(parsed, parsed.output)
    reports = read_reports(parsed, parsed.files)
    report = merged(parsed, reports, _native.merge_processes)
    if parsed.output is None:
        progress.done()
        print(report.table_of_processes())
        return 0
    progress.say("rendering")
    write(parsed, parsed.output, FORMATS[Path(parsed.output).suffix](report))
    return 0
