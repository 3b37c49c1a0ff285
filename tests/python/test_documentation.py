"""What the README and ``docs/`` show: outputs are printed, code compiles, names and links exist.

A block of output behind ``<!-- printed by: examples/x.py -->`` is what that program prints, or
``<!-- printed by: -m MODULE ... -->`` that command, after the programs of the same file. Breaks of
lines depend on the length of a path, so they do not count. ``APPROVE_DOCS=1`` writes the blocks.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import cyclescope
from cyclescope.__main__ import make_parser
from support.marks import needs_torch

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
PRINTED = re.compile(r"<!-- printed by: (.*) -->\n```text\n((?:.*\n)*?)```\n")
CODE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMANDS = re.compile(r"(?:^\$ |^    |`|; )cyclescope ((?:[^`|#\n;]|\\\|)+)", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def name(page: Path) -> str:
    return page.name


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text("utf-8")):
        path, _, anchor = link.partition("#")
        if "://" in path:
            here = re.match(r"https://[^/]+/cyclescope/cyclescope/(?:blob/)?main/(.*)", path)
            assert here is None or (ROOT / here[1]).exists(), link
            continue
        target = page.parent / path if path else page
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text("utf-8"), re.MULTILINE)
            slugs = [re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-") for title in headings]
            assert anchor in slugs, link


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_code_compiles_and_names_what_there_is(page: Path) -> None:
    text = page.read_text("utf-8")
    for code in CODE.findall(text):
        compile(code, page.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for names in re.findall(r"\bcyclescope\.([A-Za-z_][\w.]*\w)\(", text):
        found: object = cyclescope
        for each in names.split("."):
            if not hasattr(found, each):
                importlib.import_module(f"cyclescope.{names.rpartition('.')[0]}")
            found = getattr(found, each)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_have_the_options_that_are_shown(page: Path) -> None:
    for line in COMMANDS.findall(page.read_text("utf-8")):
        words = shlex.split(line)
        words = [re.sub(r"^(NAME|COMMAND)$", "closure-captures-owner", word) for word in words]
        words = [re.sub(r"^PID$", "4242", word) for word in words]
        if words[0] in ("closure-captures-owner", "--help", "--version"):
            continue
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            try:
                _, unknown = make_parser([words[0]]).parse_known_args(words)
            except SystemExit:
                # A command may be named without what it is given.
                assert "arguments are required" in said.getvalue(), line
                continue
        assert not unknown, line


def test_the_readme_is_read_in_five_minutes() -> None:
    assert (ROOT / "README.md").read_text("utf-8").count("\n") <= 180


@needs_torch
@pytest.mark.parametrize(
    "page", [page for page in PAGES if PRINTED.search(page.read_text("utf-8"))], ids=name
)
def test_outputs_are_what_is_printed(page: Path) -> None:
    text = page.read_text("utf-8")
    # A folder with a short path, as a trace cuts off the beginning of long ones.
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "examples" / "first_leak.py", Path(folder, "train.py"))
        printed = {command: run(command, Path(folder)) for command, _ in PRINTED.findall(text)}
    if os.environ.get("APPROVE_DOCS"):
        page.write_text(PRINTED.sub(lambda block: written(block[1], printed[block[1]]), text))
        return
    for command, shown in PRINTED.findall(text):
        assert shown.split() == printed[command].split(), f"APPROVE_DOCS=1 renews {page.name}"


def written(command: str, output: str) -> str:
    return f"<!-- printed by: {command} -->\n```text\n{output}```\n"


def run(command: str, folder: Path) -> str:
    """What a command prints, with the names of this machine and this run taken out."""
    words = ["train.py"] if command.startswith("examples/") else shlex.split(command)
    if words[-1] == "leaks":
        if not (folder / "leaks").exists():
            run("examples/", folder)
        words[-1:] = map(str, folder.glob("leaks/*.json"))
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "PYTHONHASHSEED": "0"},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    output = (done.stdout + done.stderr).replace(f"{folder}/", "")
    output = re.sub(r"leaks/(\w{16})-\S+\.html", r"leaks/\1-node7-4242-0.html", output)
    # The head of a report differs from run to run.
    return re.sub(r"\A.*?(?=^LEAK 1)", "", output, flags=re.DOTALL | re.MULTILINE)
