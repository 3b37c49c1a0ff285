"""Known leaks are counted without being described: is each counted as what it is?

Of leaks that look alike in all but a name, an order or a line, those of a random collection are
counted, and the counts compared with how often each was made.
"""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy
import pytest

import cyclescope

pytestmark = pytest.mark.usefixtures("small_heap", "collector_paused")


def array() -> Any:
    return numpy.zeros(8)


class Node:
    """Attributes of which some are there, in an order that differs."""

    def __init__(self, **attributes: object) -> None:
        for name, value in attributes.items():
            setattr(self, name, value)


class Slots:
    __slots__ = ("array", "left", "right")


def attribute(*names: str) -> None:
    """A cycle through the first attribute; the others are there, and lead nowhere."""
    node = Node(**dict.fromkeys(sorted(names)), array=array())
    setattr(node, names[0], node)


def only_attribute(name: str) -> None:
    node = Node(array=array())
    setattr(node, name, node)


def slot(name: str) -> None:
    node = Slots()
    node.array = array()  # type: ignore[attr-defined]
    setattr(node, name, node)


def item(place: int) -> None:
    ring: list[Any] = [None, None, array()]
    ring[place] = ring


def in_tuple(place: int) -> None:
    node = Node(array=array())
    parts: list[Any] = [None, None]
    parts[place] = node
    node.parts = tuple(parts)  # type: ignore[attr-defined]


def key(name: str) -> None:
    ring: dict[str, Any] = {"array": array(), "other": None}
    ring[name] = ring


def in_dict(name: str, place: str) -> None:
    node = Node(array=array())
    setattr(node, place, {name: node})


def closure_of_one() -> None:
    node = Node(array=array())
    node.callback = lambda: node  # type: ignore[attr-defined]


def closure_of_another() -> None:
    node = Node(array=array())
    node.callback = lambda: node  # type: ignore[attr-defined]


def closure(which: bool) -> None:
    first, second = Node(array=array()), Node()
    if which:
        first, second = second, first

    def callback() -> object:
        return first, second

    first.callback = callback  # type: ignore[attr-defined]
    second.callback = callback  # type: ignore[attr-defined]


def default(keyword: bool) -> None:
    node = Node(array=array())
    if keyword:

        def callback(*, it: object = node) -> object:
            return it
    else:

        def callback(it: object = node) -> object:  # type: ignore[misc]
            return it

    node.callback = callback  # type: ignore[attr-defined]


def bound(name: str) -> None:
    node = Node(array=array())
    setattr(node, name, node.__init__)  # type: ignore[misc]


def of_its_own(name: str) -> None:
    """With a dictionary that was asked for."""
    node = Node(array=array())
    vars(node)[name] = node


def pair(first: str, second: str) -> None:
    one, other = Node(array=array()), Node()
    setattr(one, first, other)
    setattr(other, second, one)


LEAKS: list[Callable[[], None]] = [
    *(partial(attribute, *names) for names in ("ab", "ba", "abc", "cab", "bca")),
    *(partial(only_attribute, name) for name in "abc"),
    *(partial(slot, name) for name in ("left", "right")),
    *(partial(item, place) for place in (0, 1)),
    *(partial(in_tuple, place) for place in (0, 1)),
    *(partial(key, name) for name in ("one", "other")),
    *(partial(in_dict, name, place) for name in "ab" for place in ("these", "those")),
    closure_of_one,
    closure_of_another,
    *(partial(closure, which) for which in (False, True)),
    *(partial(default, keyword) for keyword in (False, True)),
    *(partial(bound, name) for name in ("run", "step")),
    *(partial(of_its_own, name) for name in "ab"),
    *(partial(pair, first, second) for first in "ab" for second in "ab"),
]


def signatures(leak: Callable[[], None]) -> Counter[str]:
    """What an explicit check says, which describes each leak."""
    leak()
    found = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    return Counter({leak.signature: leak.count for leak in found})


def test_the_leaks_differ() -> None:
    """A few are one leak by their signature, such as two that differ in what leads nowhere."""
    assert len({tuple(sorted(signatures(leak))) for leak in LEAKS}) >= 20


@pytest.mark.parametrize("seed", range(10))
def test_each_is_counted_as_what_it_is(seed: int) -> None:
    dice = random.Random(seed)
    truth = {number: signatures(leak) for number, leak in enumerate(LEAKS)}
    expected: Counter[str] = Counter()

    def silent(report: cyclescope.CycleReport) -> None: ...

    with cyclescope.Watch(["any"], silent, once_per_leak=True) as watch:
        # Each is told once; what is made later is only counted.
        for round_ in range(4):
            numbers = list(truth)
            if round_:
                numbers = dice.choices(dice.sample(numbers, dice.randint(2, 8)), k=40)
            for number in numbers:
                LEAKS[number]()
                expected += truth[number]
            gc.collect()
            assert watch.flush(60)
            found = Counter({tally.signature: tally.count for tally in watch.leaks})
            assert found == expected, round_
