"""What finalizers hide is found, and what they save is not claimed."""

from __future__ import annotations

import gc
import itertools
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import cyclescope
from support.breakers import BREAKERS, FRAMEWORKS, Owner, buffer

pytestmark = pytest.mark.usefixtures("paused")


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("leak", BREAKERS)
def test_a_check_finds_what_a_finalizer_hides(leak: Callable[[Any], None], framework: str) -> None:
    leak(buffer(framework))
    leak(buffer(framework))
    (found_leak,) = cyclescope.find_tensor_cycles(devices="any").leaks
    assert found_leak.count == 2
    assert found_leak.bytes_held == 16000
    assert cyclescope.find_tensor_cycles(devices="any").leaks == []


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("leak", BREAKERS)
@pytest.mark.parametrize("generation", [0, 2])
def test_the_watch_finds_what_a_finalizer_hides(
    leak: Callable[[Any], None], framework: str, generation: int
) -> None:
    """In each collection: it looks before any finalizer runs."""
    reports: list[cyclescope.CycleReport] = []
    with cyclescope.observe_tensor_cycles(reports.append, devices="any") as watch:
        for _ in range(100):
            leak(buffer(framework))
            gc.collect(generation)
        watch.flush()
        (tally,) = watch.leaks
    assert (tally.count, tally.largest) == (100, 8000)
    assert [report.leaks[0].bytes_held for report in reports] == [8000] * 100


RESURRECTED: list[Any] = []


class Saves(Owner):
    """Its finalizer saves what it held."""

    def __del__(self) -> None:
        RESURRECTED.append(self.tensor)


class SavesItself(Owner):
    def __del__(self) -> None:
        RESURRECTED.append(self)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("kind", [Saves, SavesItself])
def test_what_is_resurrected_is_not_claimed(kind: type[Owner], framework: str) -> None:
    def leak() -> None:
        owner = kind(buffer(framework))
        owner.suspended = owner

    reports: list[cyclescope.CycleReport] = []
    leak()
    try:
        assert cyclescope.find_tensor_cycles(devices="any").leaks == []
        assert len(RESURRECTED) == 1
        with cyclescope.observe_tensor_cycles(reports.append, devices="any"):
            for _ in range(5):
                leak()
                gc.collect()
        assert reports == []
        assert len(RESURRECTED) == 6
        assert all(float(getattr(t, "tensor", t).sum()) == 0.0 for t in RESURRECTED)
    finally:
        RESURRECTED.clear()
    # Finalizers run once: what was resurrected as a cycle is now a leak like any other.
    leaks = cyclescope.find_tensor_cycles(devices="any").leaks
    assert [leak.count for leak in leaks] == ([6] if kind is SavesItself else [])


class SavesTheLender(Owner):
    """Its finalizer saves what lends its memory to the array, and maybe drops the array."""

    def __init__(self, drops: bool) -> None:
        super().__init__(numpy.frombuffer(bytes(8000)))
        self.drops = drops

    def __del__(self) -> None:
        RESURRECTED.append(self.tensor.base)
        if self.drops:
            self.tensor = None


class SavesTheView(SavesTheLender):
    def __del__(self) -> None:
        RESURRECTED.append(self.tensor[:1])


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("kind", [SavesTheLender, SavesTheView])
def test_memory_that_was_lent_is_not_claimed_if_a_finalizer_saves_it(
    kind: type[SavesTheLender], drops: bool
) -> None:
    reports: list[cyclescope.CycleReport] = []
    try:
        with cyclescope.observe_tensor_cycles(reports.append, devices="any") as watch:
            for _ in range(5):
                saver, other = kind(drops), Owner(numpy.frombuffer(bytes(4000)))
                saver.suspended, other.suspended = saver, other
                del saver, other
                gc.collect()
            watch.flush()
    finally:
        RESURRECTED.clear()
    # Of what no finalizer touched it is known that it went.
    assert [[leak.bytes_held for leak in report.leaks] for report in reports] == [[4000]] * 5


class Renamed:
    """Its finalizer puts the reference to itself where none has a name."""

    def __init__(self) -> None:
        self.array = numpy.zeros(8)
        self.me: object = self
        self.chain: Any = itertools.chain()

    def __iter__(self) -> Renamed:
        return self

    def __next__(self) -> None:
        raise StopIteration

    def __del__(self) -> None:
        del self.me
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.chain.__setstate__((self,))


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="no iterator can be given another state")
def test_what_was_seen_before_finalizers_is_told() -> None:
    Renamed()
    (leak,) = cyclescope.find_tensor_cycles(devices="any").leaks
    assert [step.edge for step in leak.cycle] == [".me"]
    assert [buffer.path for buffer in leak.buffers] == [[".array"]]
    assert (leak.count, leak.bytes_held) == (1, 64)
