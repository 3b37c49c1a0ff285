"""Garbage that no collection frees, as ``gc.freeze()`` has excluded it."""

from __future__ import annotations

import gc
import os
import random
import weakref
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import cyclescope
from cyclescope import _native

pytestmark = pytest.mark.usefixtures("collector_paused")

SIZE = 1 << 10


class Node:
    """An object that may refer to others, and to an array."""

    def __init__(self) -> None:
        self.others: list[Node] = []


@pytest.fixture(autouse=True)
def thawed(collector_paused: None) -> Iterator[None]:
    gc.unfreeze()
    gc.collect()
    yield
    gc.unfreeze()


def cycle() -> Node:
    node = Node()
    node.others.append(node)
    node.array = numpy.zeros(SIZE, numpy.uint8)  # type: ignore[attr-defined]
    return node


def found(**how: Any) -> list[tuple[int, int, int]]:
    """How many there are of each leak, how many of them frozen, and their bytes."""
    leaks = cyclescope.find_tensor_cycles(devices="any", **how).leaks
    return [(leak.count, leak.frozen, leak.bytes_held) for leak in leaks]


def test_a_frozen_cycle_is_told_for_as_long_as_it_is_there() -> None:
    node = cycle()
    gc.freeze()
    assert found() == []
    del node
    assert found() == [(1, 1, SIZE)]
    assert found() == [(1, 1, SIZE)]
    assert found(frozen=False) == []
    gc.unfreeze()
    assert found() == [(1, 0, SIZE)]
    assert found() == []


def test_what_is_frozen_and_what_is_not_are_one_leak() -> None:
    node = cycle()
    gc.freeze()
    del node
    for _ in range(3):
        cycle()
    assert found() == [(4, 1, 4 * SIZE)]
    report = cyclescope.find_tensor_cycles(devices="any")
    assert report.leaks[0].frozen == report.leaks[0].count == 1
    for rendering in (str(report), report.to_html()):
        assert "no collection frees this garbage" in rendering
    assert cyclescope.CycleReport.from_json(report.to_json()).leaks[0].frozen == 1


def test_what_a_frozen_object_keeps_is_frozen_with_it() -> None:
    node = Node()
    node.others.append(node)
    gc.freeze()
    node.others.append(cycle())
    del node
    assert found() == [(1, 1, SIZE)]


def test_watches_and_checks_of_blocks_leave_it_out() -> None:
    node = cycle()
    gc.freeze()
    del node
    with cyclescope.forbid_tensor_cycles():
        pass
    with cyclescope.warn_tensor_cycles(devices="any") as watch:
        assert found() == [(1, 1, SIZE)]
        assert watch.leaks == []


@pytest.mark.parametrize("seed", range(int(os.environ.get("TEST_CASES", "10"))))
def test_it_is_what_unfreezing_and_collecting_frees(seed: int) -> None:
    """Random heaps of which random parts are frozen."""
    chance = random.Random(seed)
    nodes: list[Node] = []
    arrays: list[weakref.ref[Any]] = []
    for _ in range(chance.randint(1, 3)):
        for _ in range(chance.randint(1, 6)):
            node = Node()
            if chance.random() < 0.5:
                node.array = numpy.zeros(SIZE, numpy.uint8)  # type: ignore[attr-defined]
                arrays.append(weakref.ref(node.array))  # type: ignore[attr-defined]
            nodes.append(node)
        for _ in range(chance.randint(0, 10)):
            chance.choice(nodes).others.append(chance.choice(nodes))
        if chance.random() < 0.7:
            gc.freeze()
        chance.shuffle(nodes)
        if chance.random() < 0.5:
            del nodes[chance.randint(0, len(nodes)) :], node
            if not nodes:
                break
    node = Node()
    gc.collect()
    before = {id(one()) for one in arrays if one() is not None}
    told = _native.find(["any"], [], frozen=True)
    pointers = {buffer.pointer for leak in told.leaks for buffer in leak.buffers}
    assert all(leak.frozen == leak.count for leak in told.leaks)
    kept = {one().ctypes.data: id(one()) for one in arrays if one() is not None}  # type: ignore[union-attr]
    assert {id(one()) for one in arrays if one() is not None} == before
    gc.unfreeze()
    gc.collect()
    alive = {id(one()) for one in arrays if one() is not None}
    assert {kept[pointer] for pointer in pointers} == before - alive
