"""Objects of other C extensions die under a watch as they do without.

``extensions.py`` runs all of them, and ``conditions.py`` with a tracer, little memory and so on.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SCRIPT = HERE / "extensions.py"
NAMES = re.findall(r"^@program\(.*\)\ndef (\w+)", SCRIPT.read_text("utf-8"), re.MULTILINE)
VARIES = {"nothing_left"}
"""What it prints varies by a few objects without a watch too; ``extensions.py`` runs them."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What can be compiled here."""
    folder = tmp_path_factory.mktemp("built")
    command = [sys.executable, str(HERE / "compiled.py"), str(folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=250)
    return folder


@pytest.mark.parametrize("name", [name for name in NAMES if name not in VARIES])
def test_a_program_does_the_same(name: str, built: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), name, "--built", str(built)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    lacking = [line for line in done.stdout.splitlines() if line.startswith("not run: ")]
    if lacking:
        pytest.skip(lacking[0].removeprefix("not run: "))
    assert done.returncode == 0, done.stdout + done.stderr
