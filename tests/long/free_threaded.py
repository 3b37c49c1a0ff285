"""What a Python without the GIL says of cyclescope: one sentence, at build time and at import.

Interpreters come from ``CYCLESCOPE_PYTHONS`` (separated as in PATH) and from PATH.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SENTENCE = "cyclescope does not support free-threaded Python yet"
NAMED = os.environ.get("CYCLESCOPE_PYTHONS", "").split(os.pathsep)


def is_free_threaded(python: str) -> bool:
    asked = [python, "-c", "import sysconfig; print(sysconfig.get_config_var('Py_GIL_DISABLED'))"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.strip() == "1"


CANDIDATES = [shutil.which(name) for name in (*filter(None, NAMED), "python3.14t", "python3.15t")]
PYTHONS = [python for python in dict.fromkeys(filter(None, CANDIDATES)) if is_free_threaded(python)]


def test_there_is_one() -> None:
    assert PYTHONS, "Name one in CYCLESCOPE_PYTHONS: no python3.14t or python3.15t is in PATH."


@pytest.mark.parametrize("python", PYTHONS)
def test_the_import_is_refused(python: str) -> None:
    done = subprocess.run(
        [python, "-c", "import cyclescope"],
        env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"ImportError: {SENTENCE}")


@pytest.mark.parametrize("python", PYTHONS)
def test_the_build_is_refused(python: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [python, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert not list(tmp_path.iterdir())
    said = done.stdout + done.stderr
    errors = [line.strip() for line in said.splitlines() if line.strip().startswith("error: cycle")]
    [error] = errors
    assert SENTENCE in error
    assert "error[E" not in said
