"""What the README and ``docs/`` show: outputs are printed, code compiles, names and links exist.

``support/shown.py`` says which blocks of a page are run. ``APPROVE_DOCS=1`` writes their outputs.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import os
import re
import shlex
import tempfile
from pathlib import Path

import pytest

import cyclescope
from cyclescope.__main__ import make_parser
from support import shown
from support.marks import needs_torch

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
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


@pytest.mark.sampled(4)
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
                assert re.search(r"(are|is) required", said.getvalue()), line
                continue
        assert not unknown, line


ELSEWHERE = ("attach", "serve")
"""Commands that wait for something: ``test_commands_that_wait.py`` runs them."""


def shown_commands() -> list[str]:
    """The commands in the README and ``docs/`` that can run as they stand, each once."""
    found = set()
    for page in PAGES:
        if page.name == "README.md" or page.parent.name == "docs":
            text = re.sub(r"^ *```console.*?^ *```", "", page.read_text("utf-8"), flags=re.M | re.S)
            found |= {line.strip() for line in COMMANDS.findall(text)}
    found = {line.replace("NAME", "closure-captures-owner") for line in found}
    found = {line.replace("FILE:LINE", "train.py:16") for line in found}
    # A command that is only named is run with its arguments elsewhere, or needs none.
    alone = ("demo", "doctor", "explain")
    words = {line: line.split() for line in found}
    return sorted(
        line
        for line in found
        if words[line][0] not in ELSEWHERE and (len(words[line]) > 2 or words[line][0] in alone)
    )


@pytest.fixture(scope="module")
def with_reports(tmp_path_factory: pytest.TempPathFactory) -> shown.Folder:
    """A folder with the files that the commands name."""
    folder = shown.Folder(tmp_path_factory.mktemp("shown"))
    folder.copy("examples/first_leak.py", "train.py")
    folder.run("python train.py && mkdir reports && cp leaks/*.json reports/a.json")
    folder.run("for name in old new before after; do cp reports/a.json $name.json; done")
    return folder


def test_there_are_commands_to_run() -> None:
    assert len(shown_commands()) > 10


@pytest.mark.sampled(8)
@needs_torch
@pytest.mark.parametrize("command", shown_commands())
def test_a_command_runs_as_it_is_shown(command: str, with_reports: shown.Folder) -> None:
    # Anything but 0 and 1 is an error.
    with_reports.run(f"cyclescope {command}")


def test_the_links_of_the_readme_work_on_a_package_index() -> None:
    links = LINK.findall((ROOT / "README.md").read_text("utf-8"))
    assert [link for link in links if "://" not in link and not link.startswith("#")] == []


def test_the_readme_is_read_in_five_minutes() -> None:
    assert (ROOT / "README.md").read_text("utf-8").count("\n") <= 180


@pytest.mark.sampled(5)
@needs_torch
@pytest.mark.parametrize(
    "page", [page for page in PAGES if shown.runs_something(page.read_text("utf-8"))], ids=name
)
def test_outputs_are_what_is_printed(page: Path) -> None:
    text = page.read_text("utf-8")
    # A folder with a short path, as a trace cuts off the beginning of long ones.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        outputs = list(shown.outputs(text, Path(folder)))
    if os.environ.get("APPROVE_DOCS"):
        page.write_text(shown.with_outputs(text, outputs), "utf-8")
        return
    for output in outputs:
        assert output.is_as_shown, f"APPROVE_DOCS=1 renews {page.name}:\n{output.printed}"
