"""Runs what a page of the documentation shows, from top to bottom, in a folder of its own.

Three kinds of blocks are run:

- text behind ``<!-- printed by: COMMAND -->``, where ``examples/NAME.py`` stands for that program,
  run as ``train.py``; what it is called with follows its name;
- ``console``: lines that begin with ``$ `` are given to a shell, and each is followed by what it
  prints, standard output first;
- ``diff`` is applied with ``git apply``.

A line ``...``, or the word, stands for output that is left out, and ``numbers vary`` at the end of
the comment says that numbers are not compared. Breaks of lines depend on the length of paths, so
they do not count. Before the blocks, the folder has the files of
``<!-- a folder with: FILE as NAME, FILE as NAME -->``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cyclescope

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(
    r"^(?P<indent> *)(?:"
    r"<!-- printed by: (?P<command>[^\n]*?)(?P<vary>; numbers vary)? -->\n+ *```text\n"
    r"|```(?P<kind>console|diff)\n)(?P<content>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
FOLDER = re.compile(r"<!-- a folder with: (.*?) -->")
LEFT_OUT = re.compile(r"(?:^|\s)\.\.\.(?=\s|$)")


@dataclass
class Output:
    """What a page says that a command prints, and what it prints."""

    command: str
    shown: str
    printed: str
    numbers_vary: bool = False

    @property
    def is_as_shown(self) -> bool:
        """Whether it prints what is shown, but for what is left out."""
        shown, printed = self.shown, self.printed
        if self.numbers_vary:
            shown, printed = (re.sub(r"\d[\d,.]*", "0", text) for text in (shown, printed))
        parts = (" ".join(part.split()) for part in LEFT_OUT.split(shown))
        pattern = ".*".join(map(re.escape, parts))
        return re.fullmatch(pattern, " ".join(printed.split()), re.DOTALL) is not None


class Folder:
    """A folder in which the commands of a page run."""

    def __init__(self, path: Path) -> None:
        self.path = path / "project"
        self.path.mkdir()
        programs = path / "programs"
        programs.mkdir()
        for name, module in (("cyclescope", "cyclescope"), ("pytest", "pytest")):
            (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
            (programs / name).chmod(0o755)
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("CYCLESCOPE", "PYTEST", "GITHUB", "NO_COLOR", "FORCE_COLOR"))
        }
        self._environment = kept | {
            "PATH": f"{programs}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.defpath}",
            "PYTHONPATH": str(Path(cyclescope.__path__[0]).parent),
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "COLUMNS": "80",
            "OMP_NUM_THREADS": "1",
        }

    def copy(self, file: str, name: str) -> None:
        """Put a file of the repository there, under another name."""
        shutil.copy(ROOT / file, self.path / name)

    def run(self, command: str) -> str:
        """What a command prints, without the names of this machine and this run."""
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=self.path,
            env=self._environment,
            capture_output=True,
            encoding="utf-8",
            timeout=300,
            check=False,
        )
        # A leak, a difference or a test that fails is status 1.
        assert done.returncode in (0, 1), (command, done.stdout, done.stderr)
        output = (done.stdout + done.stderr).replace(f"{self.path}/", "")
        return re.sub(r"(\w{16})-[\w.]+-\d+-(\d+)\.html", r"\1-node7-4242-\2.html", output)

    def start(self, command: str) -> subprocess.Popen[str]:
        """A command that goes on, without a shell between it and signals."""
        return subprocess.Popen(
            ["bash", "-c", f"exec env {command}"],
            cwd=self.path,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )

    def apply(self, patch: str) -> None:
        """Change the files as a patch says."""
        command = ["git", "apply", "--recount", "-"]
        subprocess.run(command, cwd=self.path, input=patch, encoding="utf-8", check=True)


def runs_something(page: str) -> bool:
    """Whether a page has a block that is run."""
    return BLOCK.search(page) is not None


def outputs(page: str, path: Path) -> Iterator[Output]:
    """Runs the blocks of a page in a new folder below ``path``."""
    folder = Folder(path)
    for files in FOLDER.findall(page):
        for each in files.split(", "):
            folder.copy(*each.split(" as "))
    for block in BLOCK.finditer(page):
        content = content_of(block)
        if block["kind"] == "diff":
            folder.apply(content)
        elif block["kind"] == "console":
            for command, shown in commands(content):
                yield Output(command, shown, folder.run(command))
        else:
            printed = folder.run(as_shell(block["command"], folder))
            yield Output(block["command"], content, printed, block["vary"] is not None)


def content_of(block: re.Match[str]) -> str:
    """The lines of a block, which may be in a list and so be indented."""
    return re.sub(f"^{block['indent']}", "", block["content"], flags=re.MULTILINE)


def as_shell(command: str, folder: Folder) -> str:
    """The command behind ``printed by``, for a shell."""
    program, _, arguments = command.partition(" ")
    if program.startswith("examples/"):
        folder.copy(program, "train.py")
        return f"python train.py {arguments}"
    return command


def commands(console: str) -> Iterator[tuple[str, str]]:
    """The commands of a block, each with the output below it."""
    for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        # A line that ends with a backslash goes on.
        lines = part.splitlines(keepends=True)
        last = next(i for i, line in enumerate(lines) if not line.endswith("\\\n"))
        yield "".join(lines[: last + 1]).rstrip("\n"), "".join(lines[last + 1 :])


def with_outputs(page: str, printed: list[Output]) -> str:
    """The page with what its commands print now, where nothing is left out."""
    rest = iter(printed)

    def text_of(output: Output) -> str:
        as_it_was = output.is_as_shown or LEFT_OUT.search(output.shown)
        return output.shown if as_it_was else output.printed

    def renewed(block: re.Match[str]) -> str:
        if block["kind"] == "diff":
            return block[0]
        if block["kind"] == "console":
            found = [next(rest) for _ in commands(content_of(block))]
            content = "".join(f"$ {each.command}\n{text_of(each)}" for each in found)
        else:
            content = text_of(next(rest))
        head = block[0][: block.start("content") - block.start()]
        return f"{head}{textwrap.indent(content, block['indent'])}{block['indent']}```"

    return BLOCK.sub(renewed, page)
