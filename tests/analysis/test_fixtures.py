"""Do the fixtures run as the programs that they are, and is the same leak of each step one leak?

What must be said of each of them is in ``test_scoring.py``.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

import common
import cyclescope
from support.processes import python

pytestmark = pytest.mark.usefixtures("collector_paused")


@pytest.mark.parametrize("name", ["two_nodes", "awaitable_leak", "exception_in_local"])
def test_the_same_leak_in_every_step_is_one_leak(name: str) -> None:
    fixture = common.load(name)
    for _ in range(3):
        fixture.leak("cpu")
    (leak,) = cyclescope.find_tensor_cycles(devices="any").leaks
    assert leak.count == 3
    assert leak.bytes_held == 3 * fixture.EXPECTED.nbytes(1)
    fixture.leak("cpu")
    (later,) = cyclescope.find_tensor_cycles(devices="any").leaks
    assert later.signature == leak.signature


@pytest.mark.parametrize("name", ["two_nodes", "awaitable_leak"])
def test_warn_names_the_cycle(name: str, tmp_path: Path) -> None:
    """The fixture as a person runs it: one warning on standard error, with the cycle in it."""
    done = python(
        str(program(name)), "--device", "cpu", "--warn", cwd=tmp_path, timeout=120, check=True
    )
    first_type, first_edge = common.load(name).EXPECTED.cycle[0]
    assert first_type in done.stderr
    assert first_edge in done.stderr


@pytest.mark.parametrize("name", common.names())
def test_runs_as_a_program(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    common.load(name)  # which says so if it needs PyTorch
    path = str(program(name))
    monkeypatch.setattr(sys, "argv", [path, "--device", "cpu", "--iterations", "2"])
    runpy.run_path(path, run_name="__main__")


def test_there_is_no_cyclescope_without_warn() -> None:
    for name in common.names():
        assert "cyclescope" not in program(name).read_text()


def program(name: str) -> Path:
    return Path(common.__file__).parent / f"{name}.py"
