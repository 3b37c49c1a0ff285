"""Known leaks are counted without being described: is each counted as what it is?

Of leaks that look alike in all but a name, an order or a line, those of a random collection are
counted, and the counts compared with how often each was made.
"""

from __future__ import annotations

import gc
import random
import types
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy
import pytest

import cyclescope

pytestmark = pytest.mark.usefixtures("collector_paused")


def array() -> Any:
    return numpy.zeros(8)


class Node:
    """Attributes of which some are there, in an order that differs."""

    def __init__(self, **attributes: object) -> None:
        for name, value in attributes.items():
            setattr(self, name, value)

    def on_step(self) -> None: ...

    def on_epoch(self) -> None: ...


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


def free_step(node: Node) -> None: ...


def free_epoch(node: Node) -> None: ...


WRAPPED: list[Callable[[object], object]] = [
    lambda method: method,
    lambda method: [method],
    lambda method: {"method": method},
    lambda method: (method,),
    lambda method: lambda: method,
]


def method(name: str, wrapped: int) -> None:
    node = Node(array=array())
    vars(node)["callback"] = WRAPPED[wrapped](getattr(node, name))


def free(function: Callable[[Node], None]) -> None:
    node = Node(array=array())
    vars(node)["callback"] = types.MethodType(function, node)


def renamed(name: str) -> None:
    node = Node(array=array())

    def callback() -> object:
        return node

    callback.__qualname__ = callback.__name__ = name
    vars(node)["callback"] = callback


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
    *(partial(method, name, i) for name in ("on_step", "on_epoch") for i in range(len(WRAPPED))),
    *(partial(free, function) for function in (free_step, free_epoch)),
    *(partial(renamed, name) for name in ("first", "second")),
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
    assert len({tuple(sorted(signatures(leak))) for leak in LEAKS}) >= 34


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


@pytest.mark.parametrize("seed", range(4))
def test_each_is_counted_as_what_it_is_in_collections_of_its_own(seed: int) -> None:
    dice = random.Random(seed)
    truth = [signatures(leak) for leak in LEAKS]
    expected: Counter[str] = Counter()

    def silent(report: cyclescope.CycleReport) -> None: ...

    with cyclescope.Watch(["any"], silent, once_per_leak=True) as watch:
        for number in dice.choices(range(len(LEAKS)), k=600):
            LEAKS[number]()
            gc.collect(dice.randrange(3))
            expected += truth[number]
            if not number % 8:
                assert watch.flush(60)
        assert watch.flush(60)
        assert Counter({tally.signature: tally.count for tally in watch.leaks}) == expected


def test_the_objects_of_each_occurrence_count() -> None:
    def box() -> Node:
        made = Node(array=array())
        vars(made)["callback"] = lambda: made
        return made

    def three_in_a_ring() -> None:
        boxes = [box() for _ in range(3)]
        for one, other in zip(boxes, [*boxes[1:], boxes[0]], strict=True):
            vars(one)["next"] = other

    def objects() -> int:
        made = cyclescope.find_tensor_cycles(devices="any", frozen=False)
        gc.collect()
        (leak,) = (leak for leak in made.leaks if "callback" in leak.summary)
        return leak.objects

    gc.disable()
    try:
        three_in_a_ring()
        of_three = objects()
        box()
        of_one = objects()
        with cyclescope.Watch(["any"], lambda report: None, once_per_leak=True) as watch:
            three_in_a_ring()
            gc.collect()
            for _ in range(20):
                box()
                gc.collect()
            assert watch.flush(60)
            (tally,) = (it for it in watch.leaks if "callback" in it.summary)
    finally:
        gc.enable()
    assert of_three > of_one
    assert tally.objects == of_three + 20 * of_one


def code_made_anew(number: int) -> None:
    space: dict[str, Any] = {}
    source = "\n" * number + "def leak(node):\n    node.callback = lambda: node\n"
    exec(compile(source, "made_anew.py", "exec"), space)
    space["leak"](Node(array=array()))


def method_made_anew(number: int) -> None:
    space: dict[str, Any] = {}
    source = "\n" * number + "def leak(node): ...\n"
    exec(compile(source, "made_anew.py", "exec"), space)
    free(space["leak"])


def other_file(number: int) -> None:
    space: dict[str, Any] = {}
    source = "def leak(node):\n    node.callback = lambda: node\n"
    exec(compile(source, f"made_anew{number}.py", "exec"), space)
    space["leak"](Node(array=array()))


def other_variable(number: int) -> None:
    space: dict[str, Any] = {}
    name = ["node", "self", "that", "this"][number]
    source = f"def leak({name}):\n    {name}.callback = lambda: {name}\n"
    exec(compile(source, "made_anew.py", "exec"), space)
    space["leak"](Node(array=array()))


def free_renamed(node: Node) -> None: ...


def renamed_method(number: int) -> None:
    free_renamed.__qualname__ = ["free_step", "free_init", "free_exit", "free_fail"][number]
    free(free_renamed)


def wrapped_method(number: int) -> None:
    functions = [free_step, free_epoch, Node.on_step, Node.on_epoch]
    free_renamed.__wrapped__ = functions[number]  # type: ignore[attr-defined]
    free(free_renamed)


class Table(dict[str, Any]):
    __slots__ = ("fifth", "first", "fourth", "third")


def slot_of_table(number: int) -> None:
    table = Table(array=array())
    setattr(table, Table.__slots__[number], table)


def name_made_anew(number: int) -> None:
    renamed("".join(["on_", ["step", "init", "exit", "fail"][number]]))


def callable_made_anew(number: int) -> None:
    node = Node(array=array())
    functions = [free_step, free_epoch, Node.on_step, Node.on_epoch]
    vars(node)["callback"] = types.MethodType(partial(functions[number]), node)


def key_made_anew(number: int) -> None:
    key("".join(["one", "two", "six", "ten"][number]))


def class_made_anew(number: int) -> None:
    name = "".join(["Left", "Back", "Rear", "Post"][number])
    node = type(name, (Node,), {})(array=array())
    node.me = node


MADE_ANEW = [
    code_made_anew,
    method_made_anew,
    other_file,
    other_variable,
    renamed_method,
    wrapped_method,
    slot_of_table,
    name_made_anew,
    callable_made_anew,
    key_made_anew,
    class_made_anew,
]


@pytest.mark.parametrize("leak", MADE_ANEW)
def test_what_is_made_anew_is_not_taken_for_what_it_was(leak: Callable[[int], None]) -> None:
    """Memory is used again: what is freed and what is made next may have one address."""
    truth = [signatures(partial(leak, number)) for number in range(4)]
    expected: Counter[str] = Counter()

    def silent(report: cyclescope.CycleReport) -> None: ...

    with cyclescope.Watch(["any"], silent, once_per_leak=True) as watch:
        for number in (0, 0, 0, 1, 2, 3, 1, 1, 2, 2, 0, 3, 3):
            leak(number)
            gc.collect()
            assert watch.flush(60)
            expected += truth[number]
        assert Counter({tally.signature: tally.count for tally in watch.leaks}) == expected


def test_a_watch_that_begins_later_is_told_of_a_known_leak() -> None:
    told: list[cyclescope.CycleReport] = []

    def silent(report: cyclescope.CycleReport) -> None: ...

    def leak(length: int) -> None:
        node = Node(array=numpy.zeros(length))
        node.me = node  # type: ignore[attr-defined]

    with cyclescope.Watch(["any"], silent, once_per_leak=True) as first:
        for _ in range(4):
            leak(1)
            gc.collect()
            assert first.flush(60)
        with cyclescope.Watch(["any"], told.append, once_per_leak=True) as second:
            leak(9)
            gc.collect()
            assert second.flush(60)
        (tally,) = first.leaks
    assert (tally.count, tally.bytes) == (5, 8 * (4 * 1 + 9))
    (report,) = told
    (found,) = report.leaks
    assert (found.count, found.bytes_held) == (1, 72)
    assert "float64[9]" in str(report)


def test_two_leaks_that_share_memory_are_counted_with_what_each_holds() -> None:
    """Their cycles look alike in all but the name of an attribute."""

    def leak() -> None:
        shared = numpy.zeros(2)
        for name, length in (("first", 1), ("second", 3)):
            node = Node(array=numpy.zeros(length), shared=shared)
            setattr(node, name, node)
            del node

    def silent(report: cyclescope.CycleReport) -> None: ...

    with cyclescope.Watch(["any"], silent, once_per_leak=True) as watch:
        for times in (1, 1, 3):
            for _ in range(times):
                leak()
            gc.collect()
            assert watch.flush(60)
        found = sorted((tally.count, tally.bytes) for tally in watch.leaks)
    assert found == [(5, 5 * 24), (5, 5 * 40)]


def test_of_many_that_look_alike_the_one_that_is_not_is_named() -> None:
    for _ in range(20):
        method("on_step", 0)
    method("on_epoch", 0)
    found = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert sorted(leak.count for leak in found) == [1, 20]


def test_what_one_look_leaves_out_comes_in_the_next() -> None:
    classes = [type(f"Node{number}", (Node,), {}) for number in range(150)]

    def silent(report: cyclescope.CycleReport) -> None: ...

    told = []
    with cyclescope.Watch(["any"], silent, once_per_leak=True) as watch:
        for _ in range(3):
            for cls in classes:
                node = cls(array=array())
                node.me = node
                del node
            gc.collect()
            assert watch.flush(60)
            told.append(len(watch.leaks))
    assert told == [64, 128, 150]
