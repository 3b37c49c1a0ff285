"""Is the same leak of the same program the same bug on every version of CPython?

Each fixture runs under every interpreter at hand; what it reports must be equal, step by step.
The interpreters are those of `make test-matrix`, those of pyenv, and those that the environment
variable ``CYCLESCOPE_PYTHONS`` names (separated as in ``PATH``); NumPy has to be installed there.
The fixtures about PyTorch are compared with those that have the same version of it.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest

import common
import cyclescope

ROOT = Path(__file__).parents[2]

Table = dict[str, list[list[Any]]]
"""Of each fixture, what is said of each leak: signature, steps, cuts, pattern, summary, advice."""

RECORDED = Path(__file__).with_name("said.json")
"""The table of the fixtures that need no PyTorch. ``APPROVE_SAID=1`` approves a new one."""

VERSIONS = """
import sys, numpy
assert sys.version_info >= (3, 10)
try:
    import torch
except ImportError:
    print(None)
else:
    print(torch.__version__)
"""


def interpreters() -> dict[Path, str]:
    """Every other Python that could be asked, and which PyTorch it has."""
    found = [Path(name) for name in os.environ.get("CYCLESCOPE_PYTHONS", "").split(os.pathsep)]
    found += sorted((ROOT / ".venvs").glob("*/bin/python"))
    if shutil.which("pyenv"):
        root = Path(run(["pyenv", "root"]).strip())
        versions = run(["pyenv", "versions", "--bare"]).split()
        found += [root / "versions" / version / "bin" / "python" for version in versions]
    able = {python: torch_of(python) for python in found if python.is_file()}
    return {python: torch for python, torch in able.items() if torch is not None}


@functools.cache
def torch_of(python: Path) -> str | None:
    """Version of the PyTorch that an interpreter has; None for one that cannot be asked."""
    done = subprocess.run(
        [str(python), "-c", VERSIONS], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else None


def run(command: list[str], **environment: str) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@functools.cache
def table(python: Path | str, *options: str, package: Path) -> Table:
    """What an interpreter reports of each fixture."""
    path = os.pathsep.join(map(str, (package, ROOT / "tests", ROOT / "fixtures")))
    command = [str(python), "-m", "support.signatures", *options]
    said: Table = json.loads(run(command, PYTHONPATH=path))
    return said


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it is: one binary serves all versions."""
    folder = tmp_path_factory.mktemp("package")
    shutil.copytree(Path(cyclescope.__file__).parent, folder / "cyclescope")
    return folder


@pytest.mark.timeout(1200)  # with PyTorch on four versions it is imported eight times
def test_signatures_are_equal_on_all_versions(package: Path) -> None:
    others = interpreters()
    if not others:
        pytest.skip(
            "needs another Python with NumPy beside the running one: "
            "run `make test-matrix` first, or set CYCLESCOPE_PYTHONS"
        )
    own_torch = torch_of(Path(sys.executable))
    own = {
        options: table(sys.executable, *options, package=package)
        for options in ((), ("--without-torch",))
    }
    for python, torch in others.items():
        options = () if torch == own_torch else ("--without-torch",)
        found = table(python, *options, package=package)
        assert found.keys() == own[options].keys()
        assert len(found) > 20
        for name, leaks in own[options].items():
            assert found[name] == leaks, f"{name} on {python} and {sys.executable}"


def test_what_is_said_is_what_is_recorded(package: Path) -> None:
    """So each Python says it in the same words, also where there is only one to ask."""
    found = table(sys.executable, "--without-torch", package=package)
    if os.environ.get("APPROVE_SAID"):
        RECORDED.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    recorded: Table = json.loads(RECORDED.read_text())
    assert found.keys() == recorded.keys()
    for name, leaks in recorded.items():
        assert found[name] == leaks, name


def test_signatures_are_equal_in_a_script_and_in_a_module(package: Path) -> None:
    """The same bug, whether its file is run or imported."""
    imported = table(sys.executable, package=package)
    as_scripts = table(sys.executable, "--as-scripts", package=package)
    assert signatures(imported) == signatures(as_scripts)


def test_each_fixture_is_a_bug_of_its_own(package: Path) -> None:
    said = signatures(table(sys.executable, package=package))
    named = [name for leaks in said.values() for name in leaks]
    assert len(named) == len(set(named)) > 20


def signatures(said: Table) -> dict[str, list[str]]:
    return {name: [leak[0] for leak in leaks] for name, leaks in said.items()}


class Stage:
    def __init__(self, held: object) -> None:
        self.held = held
        self.next = self


def ring(length: int) -> cyclescope.Leak:
    first = last = Stage(numpy.zeros(2**16))
    for _ in range(length - 1):
        last.next = last = Stage(None)
    last.next = first
    del first, last
    (leak,) = cyclescope.find_tensor_cycles(devices="any").leaks
    return leak


@pytest.mark.usefixtures("small_heap")
@pytest.mark.parametrize("length", [3, 100, 900, 1100])
def test_a_ring_is_the_same_bug_at_any_length(length: int) -> None:
    with common.collector_paused():
        assert ring(length).signature == ring(2).signature
