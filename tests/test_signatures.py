"""Is the same leak of the same program the same bug on every version of CPython?

Each fixture runs under every interpreter at hand; what it reports must be equal, step by step.
The interpreters are those of `make test-matrix`, those of pyenv, and those that the environment
variable ``CYCLESCOPE_PYTHONS`` names (separated as in ``PATH``); NumPy has to be installed there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import cyclescope

ROOT = Path(__file__).parent.parent

PROGRAM = """
import json, sys
from unittest import SkipTest

sys.modules["torch"] = None  # arrays of NumPy everywhere, also where PyTorch is installed
import common, cyclescope

found = {}
with common.collector_paused():
    for name in common.names():
        try:
            fixture = common.load(name)
        except SkipTest:
            continue
        fixture.leak("cpu")
        leaks = cyclescope.find_tensor_cycles(devices="any").leaks
        if fixture.EXPECTED.stays_alive:
            fixture.ALIVE.clear()
        found[name] = [
            [leak.signature, [[step.type_name, step.label, step.edge] for step in leak.cycle]]
            for leak in leaks
        ]
print(json.dumps([sys.version_info[:2], found]))
"""


def interpreters() -> list[Path]:
    """Every other Python that could be asked."""
    found = [Path(name) for name in os.environ.get("CYCLESCOPE_PYTHONS", "").split(os.pathsep)]
    found += sorted((ROOT / ".venvs").glob("*/bin/python"))
    if shutil.which("pyenv"):
        root = Path(output(["pyenv", "root"]).strip())
        versions = output(["pyenv", "versions", "--bare"]).split()
        found += [root / "versions" / version / "bin" / "python" for version in versions]
    return [python for python in found if python.is_file() and has_numpy(python)]


def output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def has_numpy(python: Path) -> bool:
    question = "import sys, numpy; assert sys.version_info >= (3, 10)"
    done = subprocess.run([str(python), "-c", question], capture_output=True, check=False)
    return done.returncode == 0


def reported(python: Path, package: Path) -> tuple[tuple[int, int], dict[str, Any]]:
    """Version of an interpreter, and what it reports of each fixture."""
    path = os.pathsep.join([str(package), str(ROOT / "fixtures")])
    done = subprocess.run(
        [str(python), "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": path},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    version, found = json.loads(done.stdout)
    return (version[0], version[1]), found


def test_signatures_are_equal_on_all_versions(tmp_path: Path) -> None:
    others = interpreters()
    if not others:
        pytest.skip(
            "needs another Python with NumPy beside the running one: "
            "run `make test-matrix` first, or set CYCLESCOPE_PYTHONS"
        )
    # One binary serves all versions, so the package is taken along as it is.
    shutil.copytree(Path(cyclescope.__file__).parent, tmp_path / "cyclescope")
    own_version, own = reported(Path(sys.executable), tmp_path)
    assert sum(map(len, own.values())) > 20
    for python in others:
        version, found = reported(python, tmp_path)
        for name, leaks in own.items():
            assert found[name] == leaks, f"{name} on {version} and {own_version}"


def test_signatures_are_equal_in_a_script_and_in_a_module(tmp_path: Path) -> None:
    """The same bug, whether its file is run or imported."""
    for name in ("two_nodes", "awaitable_leak", "closure_captures_owner", "generator_on_owner"):
        program = (
            "import runpy, sys, cyclescope, common\n"
            "with common.collector_paused():\n"
            "    {call}\n"
            "    (leak,) = cyclescope.find_tensor_cycles(devices='any').leaks\n"
            "print(leak.signature)\n"
        )
        file = str(ROOT / "fixtures" / f"{name}.py")
        as_script = f"runpy.run_path({file!r}, run_name='__main__')"
        signatures = [
            subprocess.run(
                [sys.executable, "-c", program.format(call=call), "--iterations", "1"],
                capture_output=True,
                text=True,
                check=True,
                env=os.environ | {"PYTHONPATH": str(ROOT / "fixtures")},
                cwd=tmp_path,
            ).stdout
            for call in (as_script, f"import {name}; {name}.leak('cpu')")
        ]
        assert signatures[0] == signatures[1], name
