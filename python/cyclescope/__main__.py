"""The command ``cyclescope``, also as ``python -m cyclescope``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import NoReturn

from cyclescope._cli.output import OutputError, drop, finish, out, tell

COMMANDS = {
    "run": "run a program and report its leaks",
    "report": "show reports, or convert them to HTML and other formats",
    "merge": "merge the reports of several processes, with one column per rank",
    "serve": "show the reports of a folder in a browser, as they are written",
    "diff": "compare two reports: new, grown and gone leaks",
    "fix": "print the patch that removes a reference cycle, if no code is found that depends on it",
    "explain": "explain a leak pattern, a kind of growth or an out-of-memory verdict",
    "demo": "run a small program that leaks",
    "doctor": "check this installation: versions, driver, devices, settings",
    "attach": "find out what holds the memory of a running process",
    "completion": "print the completion script for a shell",
}

EXAMPLES = """\
examples:
  cyclescope run train.py --epochs 3
  cyclescope run --report-dir leaks -m package.module
  cyclescope report leaks/*.json -o page.html
  cyclescope explain closure-captures-owner

Run `cyclescope COMMAND --help` for the options of a command.
"""

PROGRAMS = "SCRIPT, NOTEBOOK.ipynb, -m MODULE, -c CODE, or - for standard input"

INTERRUPTED = 130
"""The exit status that shells use for a command ended by Ctrl-C."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    The status is 0 on success, 1 if the command was asked to fail on leaks or differences and
    found some, and 2 for wrong arguments or unreadable files. ``run`` returns the status of the
    program that it ran.
    """
    try:
        return _run(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        if (progress := sys.modules.get("cyclescope._cli.progress")) is not None:
            progress.done()
        return INTERRUPTED
    except OutputError as error:
        tell(f"cyclescope: error: cannot write to standard output: {error}")
        return 2
    except BrokenPipeError:
        # As of a help text. Keep the interpreter from flushing to it again at exit.
        drop()
        return 0


def _run(arguments: list[str]) -> int:
    first = next((each for each in arguments if not each.startswith("-")), None)
    if first == "help":
        # As with other programs of many commands: `help`, `help COMMAND`.
        arguments = [*arguments[arguments.index("help") + 1 :][:1], "--help"]
        first = arguments[0]
    if arguments[:1] in (["-V"], ["--version"]):
        from cyclescope._cli.common import version

        out(f"cyclescope {version()}")
        finish()
        return 0
    # Import only the command that was asked for.
    parser = make_parser([first] if first in COMMANDS else [])
    if arguments and not _begins_well(parser, arguments[0]):
        parser.error(_unknown(parser, arguments[0].partition("=")[0], first))
    if first is not None and first not in COMMANDS and not first.startswith("-"):
        parser.error(_no_command(first))
    parsed, unknown = parser.parse_known_args(arguments)
    if unknown:
        _refuse(getattr(parsed, "parser", parser), unknown)
    if parsed.command is None:
        parser.error(f"a command is required: {', '.join(COMMANDS)}")
    status: int = parsed.run(parsed)
    # A program that was run may have closed it.
    if parsed.command != "run":
        finish()
    return status


class Parser(argparse.ArgumentParser):
    """A parser that names a mistyped option rather than what is missing besides."""

    _given: Sequence[str] = ()

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse what is known."""
        if args is not None and self._runs_program():
            args = self._spaced(args)
        self._given = args or ()
        return super().parse_known_args(args, namespace)

    def _spaced(self, given: Sequence[str]) -> list[str]:
        """The arguments with ``-m MODULE`` for ``-mMODULE``, which Python takes too; and ``-c``."""
        at = 0
        while at < len(given) and given[at].startswith("-") and given[at] not in ("-", "--"):
            if given[at][:2] in ("-m", "-c") and len(given[at]) > 2:
                return [*given[:at], given[at][:2], given[at][2:], *given[at + 1 :]]
            option = self._option_string_actions.get(given[at])
            at += 2 if option is not None and option.nargs is None else 1
        return list(given)

    def error(self, message: str) -> NoReturn:
        """Exit with status 2 and an error message."""
        known = [each for each in self._option_string_actions if each.startswith("--")]
        for given in self._own():
            option = given.partition("=")[0]
            if option.startswith("--") and not any(each.startswith(option) for each in known):
                super().error(_unknown(self, option))
        if self._runs_program() and "are required" in message:
            last = next(reversed(self._given), "")
            needed = {"-m": "-m needs a MODULE", "-c": "-c needs CODE"}
            message = needed.get(last, f"a program is required: {PROGRAMS}")
        super().error(message)

    def _runs_program(self) -> bool:
        return any(each.dest == "program" for each in self._actions)

    def _own(self) -> Iterator[str]:
        """The arguments, as far as they are not those of a program that is run."""
        for given in self._given:
            if given == "--" or (self._runs_program() and not given.startswith("-")):
                return
            yield given


def make_parser(prepared: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of the command line, with the options of some commands."""
    parser = Parser(
        prog="cyclescope",
        description="Finds the reference cycles that hold GPU memory in Python programs.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-V", "--version", action="store_true", help="show the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=f"{_sentence(summary)}.")
        if name in prepared:
            module = import_module(f"cyclescope._cli.{name}")
            module.prepare_parser(command)
            command.set_defaults(run=module.run, parser=command)
    return parser


def _begins_well(parser: argparse.ArgumentParser, given: str) -> bool:
    """True if that is a command, or the beginning of an option that stands before one."""
    return not given.startswith("-") or any(
        each.startswith(given) for each in parser._option_string_actions
    )


def _no_command(name: str) -> str:
    from cyclescope._suggest import nearest

    if name.endswith((".py", ".ipynb")):
        return f"no command {name!r}; to run a program: cyclescope run {name}"
    near = nearest(name, COMMANDS)
    if near is not None:
        return f"no command {name!r}; did you mean {near!r}?"
    return f"no command {name!r}; the commands are {', '.join(COMMANDS)}"


def _refuse(parser: argparse.ArgumentParser, unknown: list[str]) -> NoReturn:
    wrong = next((each for each in unknown if each.startswith("-")), unknown[0])
    if not wrong.startswith("-"):
        parser.error(f"unexpected argument: {wrong}")
    parser.error(_unknown(parser, wrong.partition("=")[0]))


def _unknown(parser: argparse.ArgumentParser, option: str, first: str | None = None) -> str:
    """What is wrong with an option. If it stands before the first word, it may belong behind it."""
    from cyclescope._suggest import did_you_mean

    if first is not None:
        command = first if first in COMMANDS else "run"
        return f"unknown option {option}; options follow the command: cyclescope {command} {option}"
    known = [each for each in parser._option_string_actions if each.startswith("--")]
    return f"unknown option {option}{did_you_mean(option, known, 0.7)}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


if __name__ == "__main__" and (status := main()):
    # With `python -i`, an exit of 0 would be shown as a traceback.
    sys.exit(status)
