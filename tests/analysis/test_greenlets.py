"""What suspended greenlets keep is found, and goes with them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

import cyclescope

greenlet: Any = pytest.importorskip("greenlet")

MIB = 1 << 20
kept: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def tidy() -> Iterator[None]:
    yield
    kept.clear()
    gc.collect()


def wait() -> None:
    greenlet.getcurrent().parent.switch()


def array(seen: list[weakref.ref[Any]]) -> Any:
    made = numpy.ones(MIB, numpy.uint8)
    seen.append(weakref.ref(made))
    return made


def local(seen: list[weakref.ref[Any]]) -> None:
    batch = array(seen)
    wait()
    del batch


def local_of_caller(seen: list[weakref.ref[Any]]) -> None:
    batch = [array(seen)]
    wait()
    del batch


def argument(seen: list[weakref.ref[Any]]) -> None:
    def work(batch: Any) -> None:
        wait()

    work(array(seen))


def iterated(seen: list[weakref.ref[Any]]) -> None:
    def batches() -> Iterator[int]:
        batch = array(seen)
        yield 1
        del batch

    for _ in batches():
        wait()


@pytest.mark.parametrize("work", [local, local_of_caller, argument, iterated])
def test_a_variable_of_a_suspended_greenlet_is_found(work: Callable[[Any], None]) -> None:
    seen: list[weakref.ref[Any]] = []
    kept["worker"] = greenlet.greenlet(work)
    kept["worker"].switch(seen)
    report = cyclescope.why_alive(seen[0]())
    (keeper,) = report.keepers
    assert "`kept`" in keeper.words, str(report)
    assert report.is_enough
    assert "C or C++" not in str(report)
    pointer = held.ctypes.data if (held := seen[0]()) is not None else 0
    del held
    (buffer,) = [it for it in cyclescope.heap().buffers if it.pointer == pointer]
    assert ".gr_frame (frame of " in buffer.owner, buffer.owner
    assert buffer.alone
    del kept["worker"]
    assert seen[0]() is None


def test_a_variable_of_what_waits_for_a_greenlet_is_a_local_variable() -> None:
    batch = numpy.ones(MIB, numpy.uint8)
    seen = weakref.ref(batch)
    told: list[cyclescope.Retention] = []
    greenlet.greenlet(lambda: told.append(cyclescope.why_alive(seen()))).switch()
    (keeper,) = told[0].keepers
    assert keeper.words.startswith("local `batch` in `test_a_variable_of_what"), str(told[0])
    assert keeper.goes_by_itself
    assert told[0].is_enough
    del batch
    assert seen() is None
