"""``cyclescope fix``: each patch is applied by Git, and the changed program is run.

``TEST_CASES`` says how many programs are made (default: 40).
"""

from __future__ import annotations

import contextlib
import difflib
import gc
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import cyclescope
from cyclescope.__main__ import main as command
from support import fixable, unfixable
from support.fixable import Program
from support.marks import needs_fifo
from support.processes import python

CASES = int(os.environ.get("TEST_CASES", "40"))
HERE = Path(__file__).parent

pytestmark = pytest.mark.usefixtures("collector_paused")


def outcome(file: Path) -> tuple[str, cyclescope.CycleReport]:
    """What the program prints, and what is left of it."""
    module = ModuleType("program")
    module.__file__ = str(file)
    sys.modules["program"] = module
    printed = io.StringIO()
    gc.collect()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(file.read_bytes(), file, "exec", dont_inherit=True), vars(module))
            vars(module)["main"]()
        return printed.getvalue(), cyclescope.find_tensor_cycles(devices="any", frozen=False)
    finally:
        del sys.modules["program"]


def fix(capfdbinary: pytest.CaptureFixture[bytes], *arguments: str) -> tuple[int, bytes, str]:
    capfdbinary.readouterr()
    status = command(["fix", *arguments])
    sys.stdout.flush()
    out, err = capfdbinary.readouterr()
    return status, out, err.decode()


def git(folder: Path, *arguments: str, patch: bytes = b"") -> None:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, input=patch, capture_output=True, check=False
    )
    assert done.returncode == 0, (done.stderr.decode(), patch.decode())


def place_of(leak: cyclescope.Leak) -> str:
    place = leak.cuts[0].location
    assert place is not None
    return place


def added_lines(before: bytes, after: bytes) -> list[int]:
    """The numbers of the lines of a file that others have replaced."""
    lines = before.splitlines(), after.splitlines()
    changes = difflib.SequenceMatcher(None, *lines, autojunk=False).get_opcodes()
    return [
        line + 1
        for kind, _, _, first, end in changes
        if kind != "equal"
        for line in range(first, end)
    ]


@pytest.mark.parametrize("program", fixable.some(CASES), ids=lambda program: program.name)
def test_a_patch_applies_and_frees_and_changes_nothing_else(
    program: Program,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "program.py"
    file.write_bytes(program.source)
    # A file that is newer than the process is not what the process has read.
    os.utime(file, (0, 0))
    printed, report = outcome(file)
    assert report.leaks
    for _ in range(3):
        if not report.leaks:
            break
        before = file.read_bytes()
        status, patch, why = fix(capfdbinary, place_of(report.leaks[0]), "--diff")
        assert status == 0, why
        assert file.read_bytes() == before
        git(tmp_path, "apply", "--whitespace=nowarn", patch=patch)
        assert file.read_bytes() != before
        os.utime(file, (0, 0))
        afterwards, report = outcome(file)
        assert afterwards == printed != ""
    assert not report.leaks, f"{patch.decode()}\n{report}"
    for line in added_lines(program.source, file.read_bytes()):
        status, again, _ = fix(capfdbinary, f"{file}:{line}", "--diff")
        assert (status, again) == (1, b""), again.decode()


@pytest.mark.parametrize("program", unfixable.UNCERTAIN, ids=lambda program: program.name)
def test_where_it_is_not_certain_there_is_no_patch(
    program: unfixable.Uncertain, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    file = tmp_path / "program.py"
    file.write_text(program.source, encoding="utf-8")
    status, patch, why = fix(capfdbinary, f"{file}:{program.line}", "--diff")
    assert (status, patch) == (1, b"")
    assert program.reason in why.splitlines()[0]
    assert "by hand" in why


def leaky(folder: Path, name: str = "program.py") -> tuple[Path, int]:
    """A program with a leak, as it was an hour ago, and the line of the reference."""
    text = fixable.HEADERS["import"] + fixable.CLASSES["plain"]
    text = text.replace("BODY", "self.cb = lambda x: x + self.dim")
    text = text.replace("SELF", "self").replace("CB", "cb")
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    os.utime(file, (0, 0))
    return file, text[: text.index("self.cb =")].count("\n") + 1


@pytest.mark.parametrize(
    "other", ["helper.run(Owner(1).cb)", "f = Owner(1).cb", "o.cb = o.cb or print"]
)
def test_what_another_file_does_with_it_counts(
    other: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    file, line = leaky(tmp_path)
    (tmp_path / "unlike.py").write_text("f = Other().cbs\n")
    assert fix(capfdbinary, f"{file}:{line}", "--diff")[0] == 0
    (tmp_path / "main.py").write_text(f"from program import Owner\n{other}\n")
    status, patch, why = fix(capfdbinary, f"{file}:{line}", "--diff")
    assert (status, patch) == (1, b"")
    assert "main.py" in why


@pytest.mark.parametrize("name", ["a.py", "src/b c.py", 'src/d"e.py', "src/é.py"])
@pytest.mark.parametrize("below", [False, True])
def test_the_patch_applies_within_a_repository(
    name: str,
    below: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    git(tmp_path, "init", "--quiet")
    file, line = leaky(tmp_path, name)
    folder = file.parent if below else tmp_path
    monkeypatch.chdir(folder)
    status, patch, why = fix(capfdbinary, f"{os.path.relpath(file)}:{line}", "--diff")
    assert status == 0, why
    git(folder, "apply", patch=patch)
    assert b"weakref.ref(self)" in file.read_bytes()


def test_the_summary_comes_without_diff(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    file, line = leaky(tmp_path)
    monkeypatch.chdir(tmp_path)
    status, text, _ = fix(capfdbinary, f"{file}:{line}")
    assert status == 0
    assert text.startswith(b"Let the lambda in `self.cb` hold `self` through a weak reference.\n")
    assert b"| git apply" in text


@pytest.mark.parametrize("place", ["program.py", "program.py:", "program.py:x", "nowhere.py:1"])
def test_a_place_that_is_none_is_an_error(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    leaky(tmp_path)
    with pytest.raises(SystemExit) as ended:
        command(["fix", place, "--diff"])
    assert ended.value.code == 2


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0",
        b"x = 1\ry = 2\n",
        b"# coding: latin-1\nx = '\xe9'\n",
        b"x" * (2 << 20),
        b"(" * 99999,
    ],
    ids=["empty", "NUL", "lone return", "latin-1", "large", "deep"],
)
def test_files_that_are_no_source_are_refused(
    content: bytes, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    file = tmp_path / "odd.py"
    file.write_bytes(content)
    assert fix(capfdbinary, f"{file}:1", "--diff")[:2] == (1, b"")
    if hasattr(os, "mkfifo"):
        os.remove(file)
        os.mkfifo(file)
    assert fix(capfdbinary, f"{file}:1", "--diff")[:2] == (1, b"")


def test_a_report_shows_the_lines_and_the_change(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    file, line = leaky(tmp_path)
    _, report = outcome(file)
    (leak,) = report.leaks
    assert leak.source is not None
    assert leak.patch is not None
    shown = leak.source
    assert (shown.file, shown.line, shown.marked) == (str(file), line, line)
    assert shown.lines[0][shown.start : shown.end] == "self.cb = lambda x: x + self.dim"
    assert (leak.patch.line, len(leak.patch.edits)) == (line, 2)
    for text in (str(report), report.to_markdown(), report.to_html()):
        assert "self.cb = lambda x: x + self.dim" in text
        assert "^" * len("self.cb = lambda x: x + self.dim") in text
        assert "+        self_ref = weakref.ref(self)" in text
        assert "For example" not in text
    again = cyclescope.CycleReport.from_json(report.to_json())
    assert again.to_json() == report.to_json()
    saved = tmp_path / "report.json"
    saved.write_text(report.to_json(), encoding="utf-8")
    status, listed, _ = fix(capfdbinary, str(saved))
    assert status == 0
    assert f"cyclescope fix {file}:{line} --diff" in listed.decode()

    sarif = json.loads(cyclescope.to_sarif(report, base=tmp_path))
    (result,) = sarif["runs"][0]["results"]
    (change,) = result["fixes"][0]["artifactChanges"]
    assert change["artifactLocation"] == {"uri": "program.py", "uriBaseId": "SRCROOT"}
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    for replaced in reversed(change["replacements"]):
        region = replaced["deletedRegion"]
        assert region["startColumn"] == region["endColumn"] == 1
        lines[region["startLine"] - 1 : region["endLine"] - 1] = [
            replaced["insertedContent"]["text"]
        ]
    before, _ = outcome(file)
    file.write_text("".join(lines), encoding="utf-8")
    after, rest = outcome(file)
    assert (after, rest.leaks) == (before, [])


RETRIED = """
import numpy

class Problem(Exception):
    pass

def work(depth, array):
    raise Problem

def retry(depth, array):
    problem = None
    for attempt in range(2):
        try:
            return retry(depth - 1, array) if depth else work(depth, array)
        except Problem as error:
            problem = error  # KEPT
    raise Problem("gave up") from problem

def main():
    for _ in range(2):
        try:
            retry(1, numpy.ones(1 << 16))
        except Problem:
            print("given up")
"""


def test_one_change_removes_what_one_line_makes_in_several_calls(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    file = tmp_path / "program.py"
    file.write_text(RETRIED, encoding="utf-8")
    os.utime(file, (0, 0))
    printed, report = outcome(file)
    (leak,) = report.leaks
    assert len(leak.cuts) > 1
    assert leak.patch is not None
    warned = leak.to_text()
    assert "more" not in str(leak)
    assert f"\n  Patch: python -m cyclescope fix {file}:{leak.patch.line} --diff" in warned
    assert "Delete `problem` before `retry` ends" in " ".join(warned.split())
    status, patch, why = fix(capfdbinary, f"{file}:{leak.patch.line}", "--diff")
    assert status == 0, why
    git(tmp_path, "apply", "--whitespace=nowarn", patch=patch)
    afterwards, report = outcome(file)
    assert (afterwards, report.leaks) == (printed, [])


def test_a_file_that_changed_since_is_not_shown(tmp_path: Path) -> None:
    file, _ = leaky(tmp_path)
    os.utime(file)
    (leak,) = outcome(file)[1].leaks
    assert (leak.source, leak.patch) == (None, None)
    os.utime(file, (0, 0))
    (leak,) = outcome(file)[1].leaks
    assert leak.source is not None


@pytest.mark.parametrize(
    "instead", ["missing", pytest.param("fifo", marks=needs_fifo), "other", "moved"]
)
def test_a_file_that_is_not_the_programs_is_not_shown(instead: str, tmp_path: Path) -> None:
    file, _ = leaky(tmp_path)
    source = file.read_bytes()
    module = ModuleType("program")
    exec(compile(source, file, "exec", dont_inherit=True), vars(module))
    os.remove(file)
    if instead == "fifo":
        os.mkfifo(file)
    elif instead != "missing":
        file.write_bytes(b"x = 1\n" * 50 if instead == "other" else b"\n\n" + source)
        os.utime(file, (0, 0))
    with contextlib.redirect_stdout(io.StringIO()):
        gc.collect()
        vars(module)["main"]()
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert (leak.source, leak.patch) == (None, None)
    assert "For example:" in str(leak) or "For example:" in leak.to_markdown()


def test_a_redacted_report_has_no_source(tmp_path: Path) -> None:
    file, _ = leaky(tmp_path)
    program = f"""
import gc, cyclescope, runpy
gc.disable()
made = runpy.run_path({str(file)!r})
made["main"]()
report = cyclescope.find_tensor_cycles(devices="any", redact=True)
(leak,) = report.leaks
assert leak.source is None and leak.patch is None
assert "lambda x" not in report.to_json() + str(report) + report.to_html()
made["main"]()
"""
    done = python("-c", program)
    assert done.returncode == 0, done.stderr


# In this project, other files read all attributes of what they get.
ALONE = ["awaitable_leak"]
PATCHED = ALONE + sorted(
    file.stem
    for file in (HERE.parent / "render/traces").glob("*.txt")
    if "  Patch: " in file.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", PATCHED)
def test_the_patch_of_a_fixture_frees_its_memory(
    name: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    file = tmp_path / f"{name}.py"
    file.write_bytes((HERE.parents[1] / "fixtures" / file.name).read_bytes())
    os.utime(file, (0, 0))

    def leaks() -> list[cyclescope.Leak]:
        module = ModuleType(name)
        sys.modules[name] = module
        try:
            exec(compile(file.read_bytes(), file, "exec", dont_inherit=True), vars(module))
            gc.collect()
            vars(module)["leak"]("cpu")
            return cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
        finally:
            del sys.modules[name]

    (leak,) = leaks()
    assert leak.patch is not None
    place = f"{leak.patch.file}:{leak.patch.line}"
    status, patch, why = fix(capfdbinary, place, "--diff")
    assert status == 0, why
    git(tmp_path, "apply", patch=patch)
    assert leaks() == []


@pytest.mark.parametrize("here", [".", "libs", "libs/sub", "other"])
@pytest.mark.parametrize("nested", [True, False])
def test_a_patch_fits_the_folder_where_it_is_applied(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
    here: str,
    nested: bool,
) -> None:
    """The file may be in a repository within another, or outside of the current folder."""
    git(tmp_path, "init", "--quiet")
    for folder in "libs/sub", "other":
        (tmp_path / folder).mkdir(parents=True)
    file, line = leaky(tmp_path / "libs/sub")
    if nested:
        git(file.parent, "init", "--quiet")
    before = file.read_bytes()
    monkeypatch.chdir(tmp_path / here)
    status, patch, told = fix(capfdbinary, f"{os.path.relpath(file)}:{line}", "--diff")
    assert status == 0, told
    where = tmp_path / here
    if here == "other":
        assert "is not in the current folder: apply the patch with git -C " in told
        where = Path(told.rpartition("git -C ")[2].removesuffix(" apply\n"))
    git(where, "apply", patch=patch)
    assert file.read_bytes() != before


def test_a_line_that_no_file_has_is_answered(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    file, _ = leaky(tmp_path)
    status, _, why = fix(capfdbinary, f"{file}:{'9' * 30}")
    assert (status, why.splitlines()[0].endswith("the file has no such line.")) == (1, True)
    lines = len(file.read_text().splitlines())
    for line in 0, lines + 1:
        status, _, why = fix(capfdbinary, f"{file}:{line}")
        assert (status, why.splitlines()[0].endswith(f"the file has {lines} lines.")) == (1, True)
