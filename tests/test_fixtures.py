"""Does cyclescope say of each fixture exactly what its ``EXPECTED`` says, and free it?"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cyclescope

sys.path.insert(0, str(Path(__file__).parent.parent / "fixtures"))

import common
from common import Expected

Steps = list[tuple[str, str]]


@pytest.fixture(autouse=True)
def paused() -> Iterator[None]:
    with common.collector_paused():
        yield


@pytest.mark.parametrize("name", common.names())
def test_find_reports_what_is_expected(name: str) -> None:
    fixture = common.load(name)
    expected = fixture.EXPECTED
    try:
        fixture.leak("cpu", 2)
        report = cyclescope.find_tensor_cycles(devices="any")
        again = cyclescope.find_tensor_cycles(devices="any")
    finally:
        if expected.stays_alive:
            fixture.ALIVE.clear()  # type: ignore[attr-defined]
    assert len(report.leaks) == expected.leaks
    for leak in report.leaks:
        check(leak, expected, expected.nbytes(2))
    assert again.leaks == [], "the garbage of the first look is still there"


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
    program = Path(common.__file__).parent / f"{name}.py"
    done = subprocess.run(
        [sys.executable, str(program), "--device", "cpu", "--warn"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    first_type, first_edge = common.load(name).EXPECTED.cycle[0]
    assert first_type in done.stderr
    assert first_edge in done.stderr


def check(leak: cyclescope.Leak, expected: Expected, nbytes: int) -> None:
    assert leak.count == 1
    assert leak.bytes_held == nbytes
    assert sum(buffer.bytes for buffer in leak.buffers) == nbytes
    assert len(leak.buffers) == expected.tensors

    steps = [(step.type_name, step.edge) for step in leak.cycle]
    assert any(alike(turn, expected.cycle) for turn in turns(steps)), steps

    for buffer in leak.buffers:
        assert len(buffer.path) == len(expected.path), buffer.path
        for edge, part in zip(buffer.path, expected.path, strict=True):
            assert part in edge

    assert expected.cut is not None
    owner, edge = expected.cut
    cuts = [(cut.owner, cut.edge) for cut in leak.cuts]
    assert any(owner in cut_owner and edge in cut_edge for cut_owner, cut_edge in cuts), cuts
    assert leak.advice


def turns(steps: Steps) -> Iterator[Steps]:
    """The cycle as it reads from each of its steps."""
    for start in range(len(steps)):
        yield steps[start:] + steps[:start]


def alike(steps: Steps, expected: tuple[tuple[str, str], ...]) -> bool:
    return len(steps) == len(expected) and all(
        name in type_name and part in edge
        for (type_name, edge), (name, part) in zip(steps, expected, strict=True)
    )
