"""Arrays over bytes and bytearrays, also through memoryviews: reported if their memory goes."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

import cyclescope
from support.nodes import Node

SIZE = 1 << 20
kept: list[object] = []


@pytest.fixture(autouse=True)
def tidy(collector_paused: None) -> Iterator[None]:
    yield
    kept.clear()


def cycle(array: object) -> Any:
    node: Any = Node()
    node.me, node.array = node, array
    return node


def of_two(lent: bytearray) -> None:
    view = memoryview(lent)
    node, other = cycle(numpy.asarray(view)), cycle(numpy.asarray(view[5:]))
    node.other, other.other = other, node


FREED: dict[str, Callable[[bytearray], object]] = {
    "an array": lambda lent: cycle(numpy.ndarray(SIZE, numpy.uint8, lent)),
    "a view of one": lambda lent: cycle(numpy.ndarray(SIZE, numpy.uint8, lent)[5:]),
    "frombuffer": lambda lent: cycle(numpy.frombuffer(lent, numpy.uint8)),
    "a part": lambda lent: cycle(numpy.frombuffer(lent, numpy.uint8, count=10, offset=SIZE // 2)),
    "a memoryview": lambda lent: cycle(numpy.asarray(memoryview(lent))),
    "another type": lambda lent: cycle(numpy.asarray(memoryview(lent).cast("I"))),
    "every other": lambda lent: cycle(numpy.asarray(memoryview(lent)[::2])),
    "frombuffer of a memoryview": lambda lent: cycle(numpy.frombuffer(memoryview(lent))),
    "a memoryview and its array": lambda lent: cycle([v := memoryview(lent), numpy.asarray(v)]),
    "bytes": lambda lent: cycle(numpy.frombuffer(bytes(lent), numpy.uint8)),
    "bytes in a memoryview": lambda lent: cycle(numpy.asarray(memoryview(bytes(lent)))),
    "two arrays": of_two,
}


def keep(what: object) -> Any:
    kept.append(what)
    return what


KEPT: dict[str, Callable[[bytearray], object]] = {
    "the bytearray": lambda lent: cycle(numpy.frombuffer(keep(lent), numpy.uint8)),
    "the memoryview": lambda lent: cycle(numpy.asarray(keep(memoryview(lent)))),
    "a part of the memoryview": lambda lent: (
        view := memoryview(lent),
        keep(view[10:]),
        cycle(numpy.asarray(view)),
    ),
    "another array": lambda lent: (
        view := memoryview(lent),
        keep(numpy.asarray(view)),
        cycle(numpy.asarray(view)),
    ),
    "a view of the array": lambda lent: keep(cycle(numpy.frombuffer(lent, numpy.uint8)).array[5:]),
}


def freed(make: Callable[[bytearray], object]) -> int:
    """How many MiB a collection frees."""
    tracemalloc.start()
    try:
        make(bytearray(SIZE))
        before, _ = tracemalloc.get_traced_memory()
        gc.collect()
        return round((before - tracemalloc.get_traced_memory()[0]) / SIZE)
    finally:
        tracemalloc.stop()


def reported(make: Callable[[bytearray], object]) -> list[set[int]]:
    """What the leaks held, in bytes, by an explicit check and by a watch."""
    make(bytearray(SIZE))
    checked = cyclescope.find_tensor_cycles(devices="any", frozen=False)
    kept.clear()
    reports: list[cyclescope.CycleReport] = []
    with cyclescope.observe_tensor_cycles(reports.append, devices="any") as watch:
        make(bytearray(SIZE))
        gc.collect()
        watch.flush()
    return [{leak.bytes_held for leak in it.leaks} for it in (checked, *reports)]


@pytest.mark.parametrize("name", FREED)
def test_memory_that_goes_with_its_array_is_reported(name: str) -> None:
    assert freed(FREED[name]) == 1
    assert reported(FREED[name]) == [{SIZE}, {SIZE}]


@pytest.mark.parametrize("name", KEPT)
def test_memory_that_the_program_keeps_is_not_reported(name: str) -> None:
    assert freed(KEPT[name]) == 0
    kept.clear()
    assert [it for it in reported(KEPT[name]) if it] == []
