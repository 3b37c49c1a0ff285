"""``cyclescope fix`` in projects: what the other files do counts, and the patched program is run.

``TEST_CASES`` says how many programs of several uses are made (default: 40).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cyclescope.__main__ import main as command
from support.fixable_projects import PATCHED, several_uses
from support.processes import python
from support.projects import PROGRAM, Project
from support.unfixable_projects import REFUSED

CASES = int(os.environ.get("TEST_CASES", "40"))
RUN = """
import gc, sys
gc.disable()
sys.path.insert(0, "")
import program
program.main()
import cyclescope
leaks = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
print("leaks:", *[leak.cuts[0].location for leak in leaks])
"""


def outcome(folder: Path) -> tuple[str, str]:
    """What the program prints, and the places of what is left of it."""
    done = python("-X", "utf8", "-B", "-c", RUN, cwd=folder, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    printed, _, leaks = done.stdout.rpartition("leaks:")
    return printed, leaks.strip()


def fix(capfdbinary: pytest.CaptureFixture[bytes], place: str) -> tuple[int, bytes, str]:
    capfdbinary.readouterr()
    status = command(["fix", place, "--diff"])
    sys.stdout.flush()
    out, err = capfdbinary.readouterr()
    return status, out, err.decode()


def write(folder: Path, project: Project) -> None:
    files = {PROGRAM: project.program, **project.others}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    # By imports, all of them are one program.
    modules = [f"import {Path(name).stem}\n" for name in files]
    (folder / "start.py").write_text("".join(modules), encoding="utf-8")


def apply(folder: Path, patch: bytes) -> None:
    done = subprocess.run(
        ["git", "apply", "--whitespace=nowarn"],
        cwd=folder,
        input=patch,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, (done.stderr.decode(), patch.decode())


@pytest.mark.parametrize("project", PATCHED, ids=lambda project: project.name)
def test_the_patched_program_does_the_same_without_the_leak(
    project: Project,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    if "torch" in project.program:
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    write(tmp_path, project)
    printed, leaks = outcome(tmp_path)
    assert leaks
    status, patch, why = fix(capfdbinary, f"{PROGRAM}:{project.line}")
    assert status == 0, why
    apply(tmp_path, patch)
    assert outcome(tmp_path) == (printed, ""), patch.decode()


@pytest.mark.parametrize("project", REFUSED, ids=lambda project: project.name)
def test_what_the_project_could_notice_is_refused(
    project: Project, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    write(tmp_path, project)
    compile(project.program, PROGRAM, "exec")
    status, patch, why = fix(capfdbinary, f"{tmp_path / PROGRAM}:{project.line}")
    assert (status, patch) == (1, b""), patch.decode()
    assert project.reason in why.splitlines()[0]


@pytest.mark.parametrize(("name", "source"), list(several_uses(max(CASES // 4, 6))))
def test_a_lambda_with_several_uses_holds_its_object_while_it_runs(
    name: str,
    source: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / PROGRAM).write_bytes(source)
    printed, leaks = outcome(tmp_path)
    assert leaks, name
    place = leaks.split(" ")[0]
    status, patch, why = fix(capfdbinary, place)
    assert status == 0, (name, why)
    assert b"def " in patch
    apply(tmp_path, patch)
    assert outcome(tmp_path) == (printed, ""), (name, patch.decode())


def test_what_another_program_of_the_folder_does_counts_for_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    name = "deep copy of a lambda's owner"
    project = next(it for it in REFUSED if it.name == name)
    monkeypatch.chdir(tmp_path)
    write(tmp_path, project)
    place = f"{PROGRAM}:{project.line}"
    assert fix(capfdbinary, place)[0] == 1
    (tmp_path / "start.py").unlink()
    status, patch, _ = fix(capfdbinary, place)
    assert status == 0
    assert patch
