"""``cyclescope report``."""

from __future__ import annotations

import argparse

from cyclescope._cli.common import FORMATS, check_output, merged, read_reports, write


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="reports as JSON, or a folder")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help=f"where to, the ending says as what: {', '.join(FORMATS)} (default: text, printed)",
    )


def run(parsed: argparse.Namespace) -> int:
    """Show or convert."""
    from pathlib import Path

    check_output(parsed, parsed.output)
    report = merged(parsed, read_reports(parsed, parsed.files))
    if parsed.output is None:
        print(report.to_text())
    else:
        write(parsed, parsed.output, FORMATS[Path(parsed.output).suffix](report))
    return 0
