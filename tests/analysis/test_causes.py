"""Several cycles that keep the same memory: each is a leak of its own, and fixing all frees it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import cyclescope

pytestmark = pytest.mark.usefixtures("collector_paused")


class Node:
    """An object that is in no cycle by itself."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__[name] = value


class Trainer:
    """Three cycles through one object: a callback, a kept exception, a scheduler's lambda."""

    def __init__(self, fixed: str = "") -> None:
        self.weights = numpy.zeros(1 << 10)
        self.error: BaseException | None = None
        weights, me = self.weights, self if "schedule" not in fixed else None
        self.on_step: Callable[[], Any] = (
            (lambda: weights.sum()) if "callback" in fixed else (lambda: self.weights.sum())
        )
        self.scheduler = Node()
        self.scheduler.factor = lambda epoch: me
        try:
            self.fail()
        except ValueError as error:
            self.error = None if "error" in fixed else error

    def fail(self) -> None:
        raise ValueError(self)


def leaks_of(make: Callable[[], object]) -> list[cyclescope.Leak]:
    made = weakref.ref(make())
    report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
    assert made() is None
    assert report.bytes_held == (8 << 10 if report.leaks else 0)
    return report.leaks


def test_a_trainer_with_three_causes_is_three_leaks() -> None:
    leaks = leaks_of(Trainer)
    assert sorted(leak.cuts[0].edge for leak in leaks) == [".error", ".factor", ".on_step"]
    for leak in leaks:
        others = {other.signature for other in leaks} - {leak.signature}
        assert set(leak.also_held_by) == others


@pytest.mark.parametrize("fixed", ["callback", "error", "schedule"])
def test_what_is_fixed_is_told_no_more_and_the_others_still_are(fixed: str) -> None:
    before = {leak.signature for leak in leaks_of(Trainer)}
    after = {leak.signature for leak in leaks_of(lambda: Trainer(fixed))}
    assert len(after) == 2
    assert after < before


def test_when_all_are_fixed_the_memory_goes_by_itself() -> None:
    assert leaks_of(lambda: Trainer("callback error schedule")) == []


def test_two_cycles_that_share_an_object() -> None:
    def make() -> object:
        shared = Node()
        shared.array = numpy.zeros(1 << 10)
        a, b = Node(), Node()
        a.me, a.shared = a, shared
        b.call, b.shared = (lambda: b), shared
        return shared

    first, second = sorted(leaks_of(make), key=lambda leak: leak.cuts[0].edge)
    assert (first.cuts[0].edge, second.cuts[0].edge) == (".call", ".me")
    assert first.also_held_by == [second.signature]
    assert second.also_held_by == [first.signature]
    (shared,) = first.shared
    assert (shared.others, shared.bytes) == ([second.signature], 8 << 10)


def test_two_separate_cycles_with_views_of_one_array() -> None:
    """They have no object in common, and still neither cut alone frees the memory."""

    def make() -> object:
        array = numpy.zeros(1 << 10)
        one, other = Node(), Node()
        one.first, one.whole = one, array[:]
        other.second, other.whole = other, array[:]
        return one

    first, second = leaks_of(make)
    assert first.also_held_by == [second.signature]
    assert second.also_held_by == [first.signature]


def test_the_reference_to_the_tensor_is_not_the_cut() -> None:
    def make() -> object:
        node = Node()
        node.array = numpy.zeros(1 << 10)
        node.one, node.two = Node(), Node()
        node.one.call, node.two.kept = (lambda: node), [node]
        return node

    cuts = {cut.edge for leak in leaks_of(make) for cut in leak.cuts}
    assert ".array" not in cuts
    assert len(cuts) == 2


def test_a_watch_counts_each() -> None:
    with cyclescope.warn_tensor_cycles(devices="any") as watch:
        for _ in range(3):
            Trainer()
            gc.collect()
        assert watch.flush(60)
        assert [tally.count for tally in watch.leaks] == [3, 3, 3]
        report = watch.report
    assert report is not None
    assert report.bytes_held == 3 * (8 << 10)


def test_what_is_shared_counts_even_if_one_holder_is_left_out() -> None:
    everything = leaks_of(Trainer)
    for ignored in everything:
        Trainer()
        report = cyclescope.find_tensor_cycles(devices="any", ignore=[ignored.signature])
        assert len(report.leaks) == 2
        assert report.bytes_held == 8 << 10
    some = [leak.signature for leak in everything[:2]]
    Trainer()
    report = cyclescope.find_tensor_cycles(devices="any", ignore=some)
    assert (len(report.leaks), report.bytes_held) == (1, 8 << 10)


def test_a_step_counts_the_memory_once() -> None:
    collector = cyclescope.StepCollector(every=1, devices="any")
    try:
        for number in range(3):
            for _ in range(number + 1):
                Trainer()
            found = collector.step()
            assert found is not None
            assert found.bytes_held == (number + 1) * (8 << 10)
    finally:
        collector.stop()


def holders(count: int) -> Node:
    """One array in ``count`` objects, each of a class and in a cycle of its own."""
    first = Node()
    first.array = numpy.zeros(1 << 10)
    for number in range(count):
        holder = type(f"Holder{number}", (Node,), {})()
        holder.first = first
        setattr(holder, f"own_{number}", holder)
    return first


def test_twenty_causes_are_told_at_once() -> None:
    leaks = leaks_of(lambda: holders(20))
    assert {leak.cuts[0].edge for leak in leaks} == {f".own_{number}" for number in range(20)}
    assert all(cut.proven for leak in leaks for cut in leak.cuts)


def test_of_far_more_causes_a_few_are_told_and_nothing_is_promised() -> None:
    leaks = leaks_of(lambda: holders(50))
    assert len(leaks) == 8
    assert not any(cut.proven for leak in leaks for cut in leak.cuts)
