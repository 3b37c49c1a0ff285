"""cyclescope on Pythons without the GIL: built, installed, and tried there.

Interpreters come from ``PYTHONS`` (separated as in PATH) and from PATH.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = os.environ.get("PYTHONS", "").split(os.pathsep)
# Those of the other tests that need neither a watch, which is not to be had there, nor classes
# among garbage.
SUITES = [
    "tests/analysis/test_in_use.py",
    "tests/analysis/test_running_generators.py",
    "tests/analysis/test_why_alive.py",
    "tests/collector/test_frozen.py",
    "tests/diagnose/test_owner.py",
]
LEFT_OUT = "watch"


def is_free_threaded(python: str) -> bool:
    asked = [python, "-c", "import sysconfig; print(sysconfig.get_config_var('Py_GIL_DISABLED'))"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.strip() == "1"


CANDIDATES = [shutil.which(name) for name in (*filter(None, NAMED), "python3.14t", "python3.15t")]
PYTHONS = [python for python in dict.fromkeys(filter(None, CANDIDATES)) if is_free_threaded(python)]


def test_there_is_one() -> None:
    assert PYTHONS, "Name one in PYTHONS: no python3.14t or python3.15t is in PATH."


def run(*command: str | Path, path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(path)}
    environment.pop("PYO3_PYTHON", None)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("python", PYTHONS)
def test_it_works_there(python: str, tmp_path: Path) -> None:
    pip = (python, "-m", "pip", "install", "--quiet", "--target", tmp_path)
    run(*pip, "-r", "requirements/matrix.txt", path=tmp_path)
    run(*pip, "--no-deps", ROOT, path=tmp_path)
    # Not every version of Hypothesis has a wheel for these.
    without = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    pytest_there = (python, "-m", "pytest", "-q", *without)
    apart = ("--noconftest", "-c", os.devnull, "--rootdir", tmp_path)
    run(*pytest_there, *apart, "tests/long/free_threaded_checks.py", path=tmp_path)
    chosen = ("-m", "not gpu and not long", "-k", f"not {LEFT_OUT}")
    run(*pytest_there, *chosen, *SUITES, path=tmp_path)
