"""``cyclescope serve``."""

from __future__ import annotations

import argparse
import webbrowser
from pathlib import Path

from cyclescope._cli.common import fail
from cyclescope._cli.output import out
from cyclescope._files import is_folder, why_unreadable
from cyclescope._server import Server


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "folder", metavar="FOLDER", help="folder of the reports: the --report-dir of a run"
    )
    parser.add_argument(
        "--port", type=int, default=0, help="port on this machine (default: any free port)"
    )
    parser.add_argument("--open", action="store_true", help="open the page in a web browser")


def run(parsed: argparse.Namespace) -> int:
    """Serve the folder until Ctrl-C."""
    folder = Path(parsed.folder)
    if not parsed.folder or not is_folder(folder):
        fail(parsed, f"{parsed.folder or repr('')} is not a folder")
    if (why := why_unreadable(folder)) is not None:
        fail(parsed, f"cannot read {why}")
    try:
        server = Server(folder, parsed.port)
    except (OSError, OverflowError) as error:
        fail(parsed, f"cannot listen on port {parsed.port}: {error}")
    with server:
        out(f"Reports of {folder}: {server.address}", flush=True)
        out("It can be opened on this machine only. Press Ctrl-C to stop.", flush=True)
        if parsed.open:
            webbrowser.open(server.address)
        server.serve_forever()
    return 0
