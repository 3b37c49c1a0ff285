"""Young garbage is seen from among it, and none of it saved: does that show, or miss anything?

The witness is relied on after a few collections in which what it saw was compared with what the
collector saved. ``test_hook.py`` runs all its programs with it too.
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
from collector import no_other_callbacks as no_other_callbacks

PLENTY = 10
"""Collections after which the witness is relied on."""


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
    """Those of a watch that relies on its witness."""
    found = Reports()
    with cyclescope.observe_tensor_cycles(found.append, devices="any") as found.watch:
        for _ in range(PLENTY):
            Node()
            gc.collect(0)
        assert any(is_relied_on() for _ in range(PLENTY))
        gc.collect()
        yield found


def is_relied_on() -> bool:
    """Whether nothing is to be saved of a collection. A few are looked at otherwise, in turn."""
    flags: list[int] = []
    Acts(lambda: flags.append(gc.get_debug()))
    gc.collect(0)
    return flags == [0]


def test_garbage_without_a_buffer_is_never_saved(reports: Reports) -> None:
    relied_on = [is_relied_on() for _ in range(1000)]
    # The others have a look beforehand, for the cycles that finalizers break.
    assert relied_on.count(True) > 900
    assert (gc.garbage, gc.get_debug(), reports.sizes()) == ([], 0, [])


@pytest.mark.parametrize("plain", [0, 1, 50])
def test_a_buffer_among_garbage_is_reported(plain: int, reports: Reports) -> None:
    for _ in range(20):
        reports.clear()
        before, leak, after = [Node() for _ in range(plain)], Node(numpy.ones(1000)), Node()
        gone = weakref.ref(leak)
        del before, leak, after
        # CPython counts weak references that die as well, and a look beforehand has some.
        assert gc.collect(0) - (1 + plain + 1) in (0, 1)
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
    def set_flags() -> None:
        # Where the watch has set them itself, there is no telling that the program has too.
        if gc.get_debug() == 0:
            gc.set_debug(gc.DEBUG_SAVEALL)

    try:
        for _ in range(PLENTY):
            Acts(set_flags)
            gc.collect(0)
            if gc.get_debug():
                break
        assert [type(it) for it in gc.garbage if isinstance(it, Node)] == [Acts]
        assert gc.get_debug() == gc.DEBUG_SAVEALL
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def test_a_finalizer_may_end_the_watch(reports: Reports) -> None:
    for held in [None, numpy.ones(1000)]:
        watch = cyclescope.observe_tensor_cycles(reports.append, devices="any")
        for _ in range(PLENTY):
            Node()
            gc.collect(0)
        node = Node(held)
        gone = weakref.ref(node)
        node.last = Acts(watch.stop)
        del node, held
        gc.collect(0)
        gc.collect(0)
        assert gone() is None
        assert (gc.garbage, gc.get_debug()) == ([], 0)


def test_with_other_callbacks_garbage_is_saved(reports: Reports) -> None:
    # What they make would come behind the witness.
    made: list[Any] = []

    def other(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            Node(numpy.ones(500))

    gc.callbacks.append(other)
    try:
        assert not is_relied_on()
        assert reports.sizes() == [4000]
        reports.clear()
        Node(made)
        gc.collect(0)
    finally:
        gc.callbacks.remove(other)
    assert reports.sizes() == [4000]
    assert any(is_relied_on() for _ in range(PLENTY))


def test_watches_come_and_go_without_end(alone: None) -> None:
    for _ in range(300):
        with cyclescope.observe_tensor_cycles(lambda report: None, devices="any"):
            for _ in range(5):
                Node()
                gc.collect(0)
    assert (gc.garbage, gc.get_debug()) == ([], 0)
