"""``cyclescope merge``."""

from __future__ import annotations

import argparse
from pathlib import Path

from cyclescope._by_rank import as_html, as_text, table, with_section
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
    report = merged(parsed, reports)
    rows = table(reports)
    if parsed.output is None:
        progress.done()
        print(as_text(rows))
        return 0
    progress.say("rendering")
    suffix = Path(parsed.output).suffix
    text = FORMATS[suffix](report)
    if suffix == ".html":
        text = with_section(text, as_html(rows))
    elif suffix in (".txt", ".md"):
        fence = "```\n" if suffix == ".md" else ""
        text = f"{text}\n{fence}{as_text(rows)}\n{fence}"
    write(parsed, parsed.output, text)
    return 0
