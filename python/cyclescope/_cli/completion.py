"""``cyclescope completion``."""

from __future__ import annotations

import argparse

from cyclescope import __main__ as main
from cyclescope._cli.common import fail

SHELLS = ("bash", "zsh")

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
    print(shtab.complete(main.make_parser(list(main.COMMANDS)), shell=parsed.shell))
    return 0
