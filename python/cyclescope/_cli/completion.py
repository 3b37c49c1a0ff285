"""``cyclescope completion``."""

from __future__ import annotations

import argparse

from cyclescope import __main__ as main
from cyclescope import _native
from cyclescope._cli.common import fail
from cyclescope._cli.output import out

SHELLS = ("bash", "zsh")
FILES = ("FILE", "FILE:LINE", "SCRIPT", "OLD", "NEW")
FOLDERS = ("DIR", "FOLDER")

EPILOG = """\
examples:
  bash  cyclescope completion bash > ~/.local/share/bash-completion/completions/cyclescope
  zsh   cyclescope completion zsh > ~/.zfunc/_cyclescope  # a folder of $fpath

Needs shtab: pip install 'cyclescope[completion]'
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("shell", choices=SHELLS, help="the shell")


def run(parsed: argparse.Namespace) -> int:
    """Print the script."""
    try:
        import shtab
    except ImportError:
        fail(parsed, "shell completion needs shtab: pip install 'cyclescope[completion]'")
    parser = main.make_parser(list(main.COMMANDS))
    _complete_names(parser, shtab.FILE, shtab.DIRECTORY)
    out(shtab.complete(parser, shell=parsed.shell))
    return 0


def _complete_names(parser: argparse.ArgumentParser, file: object, folder: object) -> None:
    """Mark the arguments that name a file or a folder, and list the pages of ``explain``."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _complete_names(command, file, folder)
        elif action.metavar in FILES or action.dest == "program":
            action.complete = file  # type: ignore[attr-defined]
        elif action.metavar in FOLDERS:
            action.complete = folder  # type: ignore[attr-defined]
        elif parser.prog.endswith(" explain") and action.dest == "name":
            action.choices = [name for _, pages in _native.explanations() for name, _ in pages]
