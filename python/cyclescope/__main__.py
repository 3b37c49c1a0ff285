"""The command ``cyclescope``, also as ``python -m cyclescope``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

COMMANDS = {
    "run": "run a program and tell of its leaks",
    "report": "show reports, or turn them into a page or another format",
    "merge": "merge the reports of many processes, with a column a rank",
    "diff": "compare two reports: what is new, gone, grown",
    "explain": "explain a pattern of leaks, or list them all",
    "demo": "watch a small program leak",
    "doctor": "say what works here: versions, driver, devices, settings",
}

INTERRUPTED = 130
"""As a shell has it for a command that Ctrl-C ended."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the status to exit with.

    0 if all is well; 1 if there are leaks, or differences, and the command was to say so; 2 if it
    was asked for what is not there or cannot be. ``run`` has the program's own status.
    """
    try:
        status = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        if (progress := sys.modules.get("cyclescope._cli.progress")) is not None:
            progress.done()
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has seen enough; the interpreter is not to try again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="cyclescope",
        description="Finds the reference cycles that hold GPU memory in Python programs.",
        epilog="`cyclescope COMMAND --help` says more of each.",
    )
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=f"{_sentence(summary)}.")
        # Only the command that is asked for is imported.
        if name in arguments[:1]:
            module = import_module(f"cyclescope._cli.{name}")
            module.prepare_parser(command)
            command.set_defaults(run=module.run, parser=command)
    parsed = parser.parse_args(arguments)
    if parsed.version:
        from cyclescope._cli.common import version

        print(f"cyclescope {version()}")
        return 0
    if parsed.command is None:
        parser.error(f"give a command: {', '.join(COMMANDS)}")
    status: int = parsed.run(parsed)
    return status


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


if __name__ == "__main__":
    sys.exit(main())
