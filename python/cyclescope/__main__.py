"""The command ``cyclescope``, also as ``python -m cyclescope``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

COMMANDS = {
    "run": "run a program and report its leaks",
    "report": "show reports, or convert them to HTML and other formats",
    "merge": "merge the reports of several processes, with one column per rank",
    "diff": "compare two reports: new, grown and gone leaks",
    "fix": "print the patch that removes a reference cycle, where it is certain",
    "explain": "explain a leak pattern, or list all patterns",
    "demo": "run a small program that leaks",
    "doctor": "check this installation: versions, driver, devices, settings",
}

INTERRUPTED = 130
"""The exit status that shells use for a command ended by Ctrl-C."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    The status is 0 on success, 1 if the command was asked to fail on leaks or differences and
    found some, and 2 for wrong arguments or unreadable files. ``run`` returns the status of the
    program that it ran.
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
        # The reader has closed the pipe. Keep the interpreter from flushing to it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="cyclescope",
        description="Finds the reference cycles that hold GPU memory in Python programs.",
        epilog="Run `cyclescope COMMAND --help` for the options of a command.",
    )
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=f"{_sentence(summary)}.")
        # Import only the command that was asked for.
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
        parser.error(f"a command is required: {', '.join(COMMANDS)}")
    status: int = parsed.run(parsed)
    return status


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


if __name__ == "__main__":
    sys.exit(main())
