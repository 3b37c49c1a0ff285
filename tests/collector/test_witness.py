"""Garbage is seen from among it in collections of each generation: does that show, or miss any?

``test_hook.py`` and ``harmless/`` compare whole programs with and without.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy
import pytest

import cyclescope

GENERATIONS = [0, 1, 2]


class Node:
    """A cycle of one, also in CPython 3.10, where a ``__dict__`` is an object of its own."""

    __slots__ = ("__weakref__", "held", "itself", "last")

    def __init__(self, held: Any = None) -> None:
        self.itself, self.held = self, held
        self.last: Any = None


class Acts(Node):
    """One with a finalizer."""

    __slots__ = ("act",)

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self.act = act

    def __del__(self) -> None:
        self.act()


class Reports(list[cyclescope.CycleReport]):
    """What a watch has told of, which comes a little later than the collection."""

    watch: cyclescope.Watch

    def sizes(self) -> list[int]:
        self.watch.flush()
        return [leak.bytes_held for report in self for leak in report.leaks]


@pytest.fixture
def alone(no_other_callbacks: None) -> Iterator[None]:
    """And no collections but the test's own."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def reports(alone: None) -> Iterator[Reports]:
    found = Reports()
    with cyclescope.observe_tensor_cycles(found.append, devices="any") as found.watch:
        yield found


def test_garbage_is_never_saved(reports: Reports) -> None:
    flags: list[int] = []
    for generation in GENERATIONS * 30:
        Acts(lambda: flags.append(gc.get_debug()))
        gc.collect(generation)
    assert flags == [0] * 90
    assert (gc.garbage, reports.sizes()) == ([], [])


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("plain", [0, 1, 50])
def test_a_buffer_among_garbage_is_reported(plain: int, generation: int, reports: Reports) -> None:
    for _ in range(20):
        reports.clear()
        before, leak, after = [Node() for _ in range(plain)], Node(numpy.ones(1000)), Node()
        for younger in range(generation):
            gc.collect(younger)
        gone = weakref.ref(leak)
        del before, leak, after
        assert gc.collect(generation) == 1 + plain + 1
        assert gone() is None
        assert reports.sizes() == [8000]
    assert (gc.garbage, gc.get_debug()) == ([], 0)


def test_what_collections_count_is_the_garbage_alone(
    reports: Reports,
) -> None:
    counts, collected = [], gc.get_stats()[0]["collected"]
    for count in range(50):
        made = [Node() for _ in range(count)]
        del made
        counts.append(gc.collect(0))
    assert counts == list(range(50))
    assert gc.get_stats()[0]["collected"] == collected + sum(counts)


def test_nobody_finds_the_witness(reports: Reports) -> None:
    def ours(objects: list[Any]) -> list[Any]:
        return [it for it in objects if type(it).__name__ == "Witness"]

    class Last:
        """Dies by its count of references, when the garbage that holds it is destroyed."""

        __slots__ = ()

        def __del__(self) -> None:
            inside.append(ours(gc.get_objects()))

    assert ours(gc.get_objects()) == []
    inside: list[Any] = []
    Acts(lambda: inside.append(ours(gc.get_objects())))
    Node(Last())
    gc.collect(0)
    assert (inside, ours(gc.get_objects())) == ([[], []], [])


def test_what_a_finalizer_brings_back_stays(reports: Reports) -> None:
    kept: list[Any] = []
    for held in [None, numpy.ones(1000)]:
        node = Node(held)
        node.last = Acts(partial(kept.append, node))
        del node
        gc.collect(0)
    del held
    assert [node.held is None for node in kept] == [True, False]
    assert all(node.itself is node for node in kept)
    assert (gc.garbage, gc.get_debug()) == ([], 0)


def test_a_finalizer_may_change_the_flags(reports: Reports) -> None:
    try:
        Acts(lambda: gc.set_debug(gc.DEBUG_SAVEALL))
        gc.collect(0)
        assert [type(it) for it in gc.garbage if isinstance(it, Node)] == [Acts]
        assert gc.get_debug() == gc.DEBUG_SAVEALL
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def test_the_first_finalizer_is_the_witness_and_the_last_the_sentinel(reports: Reports) -> None:
    """Whatever the order in which objects were made, and however old they are."""
    for generation in GENERATIONS:
        reports.clear()
        nodes = []
        for age in range(generation + 1):
            node = Node(numpy.ones(1000))
            node.last = Acts(partial(setattr, node, "held", None))
            nodes.append(node)
            if age < generation:
                gc.collect(age)
        node.last.last = node
        del nodes, node
        gc.collect(generation)
        reports.watch.flush()
        assert sum(report.bytes_held for report in reports) == 8000 * (generation + 1)


def test_what_the_program_saves_is_not_told_of_until_it_goes(reports: Reports) -> None:
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        Node(numpy.ones(1000))
        gc.collect()
        assert reports.sizes() == []
    finally:
        gc.set_debug(0)
    gc.garbage.clear()
    gc.collect()
    assert reports.sizes() == [8000]


@pytest.mark.parametrize("flag", [gc.DEBUG_COLLECTABLE, gc.DEBUG_STATS])
@pytest.mark.parametrize("when", ["before", "as the collection begins"])
def test_the_witness_is_not_printed(
    flag: int, when: str, reports: Reports, capfd: pytest.CaptureFixture[str]
) -> None:
    def set_flag(phase: str, info: dict[str, int]) -> None:
        gc.set_debug(flag)

    if when == "before":
        gc.set_debug(flag)
    else:
        gc.callbacks.append(set_flag)
    try:
        Node(numpy.ones(1000))
        gc.collect()
    finally:
        gc.set_debug(0)
        gc.callbacks[:] = [it for it in gc.callbacks if it is not set_flag]
    assert "Witness" not in capfd.readouterr().err
    gc.collect()
    Node(numpy.ones(500))
    gc.collect()
    assert 4000 in reports.sizes()


def test_a_finalizer_may_end_the_watch(reports: Reports) -> None:
    for held in [None, numpy.ones(1000)]:
        watch = cyclescope.observe_tensor_cycles(reports.append, devices="any")
        node = Node(held)
        gone = weakref.ref(node)
        node.last = Acts(watch.stop)
        del node, held
        gc.collect(0)
        gc.collect(0)
        assert gone() is None
        assert (gc.garbage, gc.get_debug()) == ([], 0)


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("place", [0, 1])
def test_other_callbacks_may_make_garbage(place: int, generation: int, reports: Reports) -> None:
    """What those that come later make stands behind the witness, unless that is moved."""

    def other(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            Node(numpy.ones(500))

    gc.callbacks.insert(place, other)
    try:
        Node(numpy.ones(1000))
        gc.collect(generation)
    finally:
        gc.callbacks.remove(other)
    assert reports.sizes() == [8000, 4000] or sum(reports.sizes()) == 12000


@pytest.mark.parametrize("which", [slice(None), slice(0, 1), slice(1, 2), slice(2, 3)])
def test_a_program_that_holds_the_witness_sees_no_harm(which: slice, reports: Reports) -> None:
    """Or the usher, or the sentinel, which stand before and behind it."""
    held: list[Any] = []

    def take(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            held.extend([it for it in gc.get_objects(0) if type(it).__name__ == "Witness"][which])

    gc.callbacks.append(take)
    try:
        Node(numpy.ones(1000))
        assert gc.collect() == 1
    finally:
        gc.callbacks.remove(take)
    assert held
    for it in held:
        it.__del__()
        with pytest.raises(TypeError):
            type(it)()
    assert reports.sizes() == []
    held.clear()
    del it
    Node(numpy.ones(500))
    assert gc.collect() == 1
    assert reports.sizes() == [4000]


def test_others_are_called_when_a_callback_ends_the_watch(alone: None) -> None:
    """CPython goes through the list by index: what leaves it lets one be passed over."""
    called: list[str] = []
    watch = cyclescope.observe_tensor_cycles(lambda report: None, devices="any")

    def first(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            watch.stop()

    def second(phase: str, info: dict[str, int]) -> None:
        called.append(phase)

    gc.callbacks.insert(0, first)
    gc.callbacks.append(second)
    gc.collect()
    assert called == ["start", "stop"]


def test_watches_come_and_go_without_end(alone: None) -> None:
    for _ in range(300):
        with cyclescope.observe_tensor_cycles(lambda report: None, devices="any"):
            for _ in range(5):
                Node()
                gc.collect(0)
    gc.collect()
    assert (gc.garbage, gc.get_debug()) == ([], 0)
