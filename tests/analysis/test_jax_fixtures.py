"""What is said of the programs in `fixtures/with_jax/`."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import common
import cyclescope
from support.monitors import monitor_of_all

PROGRAMS = Path(common.__file__).parent / "with_jax"
ELEMENTS = 4096
NBYTES = 4 * ELEMENTS

pytestmark = pytest.mark.usefixtures("collector_paused")


@pytest.fixture(autouse=True, scope="module")
def imported() -> None:
    """With the first test, so that the heap of other files' tests stays small."""
    pytest.importorskip("jax", reason="JAX is not installed")


@pytest.fixture(params=sorted(path.stem for path in PROGRAMS.glob("*.py")))
def program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(PROGRAMS))
    module = importlib.import_module(request.param)
    yield module
    module.STAYS_ALIVE.clear()
    del sys.modules[request.param]


def test_the_leak_is_found(program: Any) -> None:
    expected = program.EXPECTED
    for _ in range(2):
        program.leak(ELEMENTS)
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert leak.count == 2
    assert leak.bytes_held == 2 * expected["arrays"] * NBYTES
    steps = [(step.type_name, step.edge) for step in leak.cycle]
    assert any(name.endswith(expected["owner"]) for name, _ in steps), steps
    assert any(edge == expected["cut"] for _, edge in steps), steps
    assert any(cut.proven for cut in leak.cuts)


def test_the_watch_tells_of_it(program: Any) -> None:
    seen: list[Any] = []
    with cyclescope.observe_tensor_cycles(seen.append, devices="any"):
        for _ in range(3):
            program.leak(ELEMENTS)
            gc.collect()
    held = [leak.bytes_held for report in seen for leak in report.leaks]
    assert held == [program.EXPECTED["arrays"] * NBYTES] * 3


def test_nothing_is_said_of_what_looks_like_it(program: Any) -> None:
    program.look_alike(ELEMENTS)
    assert cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks == []


def test_what_is_retained_is_in_the_heap(program: Any) -> None:
    program.retained(ELEMENTS)
    assert cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks == []
    heap = cyclescope.heap()
    held = [buffer for buffer in heap.buffers if buffer.bytes == NBYTES]
    assert held
    owners = {buffer.owner for buffer in held}
    assert any("STAYS_ALIVE" in owner or "jax" in owner for owner in owners), owners
    assert all(buffer.device == "cpu" for buffer in held)


def test_what_grows_is_named(program: Any) -> None:
    with monitor_of_all() as monitor:
        for step in range(40):
            program.grow(ELEMENTS, step)
            monitor.step()
    (growth,) = monitor.found
    assert "STAYS_ALIVE" in growth.owner
    assert growth.bytes == growth.tensors * NBYTES
