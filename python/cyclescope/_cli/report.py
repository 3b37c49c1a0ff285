"""``cyclescope report``."""

from __future__ import annotations

import argparse
from pathlib import Path

from cyclescope._cli import progress
from cyclescope._cli.common import FORMATS, check_output, merged, read_reports, write


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="reports as JSON: files, folders or glob patterns",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help=f"output file; the extension sets the format: {', '.join(FORMATS)} (default: print "
        "text)",
    )


def run(parsed: argparse.Namespace) -> int:
    """Print the report, or convert it."""
    check_output(parsed, parsed.output)
    report = merged(parsed, read_reports(parsed, parsed.files))
    progress.say("rendering")
    if parsed.output is None:
        text = report.to_text()
        progress.done()
        print(text)
    else:
        write(parsed, parsed.output, FORMATS[Path(parsed.output).suffix](report))
    return 0
