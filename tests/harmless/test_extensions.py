"""Objects of other C extensions die under a watch as they do without.

``extensions.py`` runs all of them, and ``conditions.py`` with a tracer, little memory and so on.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import conditions
import extensions

HERE = Path(__file__).parent
VARIES = {"nothing_left"}
"""What it prints varies by a few objects without a watch too; ``extensions.py`` runs them."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What can be compiled here."""
    folder = tmp_path_factory.mktemp("built")
    command = [sys.executable, str(HERE / "compiled.py"), str(folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=250)
    return folder


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", [name for name in extensions.PROGRAMS if name not in VARIES])
def test_a_program_does_the_same(
    name: str, built: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    monkeypatch.syspath_prepend(str(built))
    if lacking := extensions.missing(name):
        pytest.skip(f"needs {', '.join(lacking)}")
    # Those that start processes take long: `extensions.py` runs them under nothing, too.
    unders = ["beside"] if name in extensions.SLOW else ["", "beside"]
    differs = conditions.compare_all([f"extensions:{name}"], unders, str(built))
    assert not differs, capsys.readouterr().out
