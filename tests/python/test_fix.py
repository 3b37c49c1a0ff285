"""``cyclescope fix``: each patch is applied by Git, and the changed program is run.

``TEST_CASES`` says how many programs are made (default: 60).
"""

from __future__ import annotations

import contextlib
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
from support import fixable
from support.fixable import Program

CASES = int(os.environ.get("TEST_CASES", "60"))

pytestmark = pytest.mark.usefixtures("collector_paused")


def outcome(file: Path) -> tuple[str, cyclescope.CycleReport]:
    """What the program prints, and what is left of it."""
    module = ModuleType("program")
    sys.modules["program"] = module
    printed = io.StringIO()
    gc.collect()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(file.read_bytes(), file, "exec", dont_inherit=True), vars(module))
            vars(module)["main"]()
        return printed.getvalue(), cyclescope.find_tensor_cycles(devices="any")
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
        afterwards, report = outcome(file)
        assert afterwards == printed != ""
    assert not report.leaks, f"{patch.decode()}\n{report}"
