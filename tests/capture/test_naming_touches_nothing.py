"""Does naming garbage leave every object as it is, and find the right names all the same?

From inside a collection nothing may be made that moves a reference: an instance's ``__dict__``, a
frame object, a frame's dict of variables. Each maker here builds objects that refer to a list in a
cycle with them, in one of the forms in which CPython keeps references, and says under which name.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import gc
import json
import random
import sys
import types
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from typing import Any, NamedTuple

import numpy
import pytest

from cyclescope import _native

SINCE_3_11 = sys.version_info >= (3, 11)
"""Suspended functions have their variables themselves; before, their frame objects have them."""

Hub = list[Any]
Names = set[str]
"""The names under which an object refers to the hub; the empty set if nothing is said of it."""

MAKERS: list[Callable[[random.Random, Hub], Iterator[tuple[Any, Names]]]] = []


def maker(
    make: Callable[[random.Random, Hub], Iterator[tuple[Any, Names]]],
) -> Callable[[random.Random, Hub], Iterator[tuple[Any, Names]]]:
    MAKERS.append(make)
    return make


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """The first look imports and learns what the later ones use."""
    gc.collect()
    cycle: Hub = [numpy.ones(10)]
    cycle.append(cycle)
    del cycle
    _native.look(["any"])
    gc.collect()


class Facts(NamedTuple):
    type_name: str
    referents: list[int]
    references: int
    references_to_buffers: list[int]


def facts(addresses: set[int]) -> dict[int, Facts]:
    """What each object refers to, and the number of references to it and to the arrays it holds.

    Not to all that it refers to: other garbage has its own entry, and ``None`` is everybody's.
    """
    found = {}
    for it in gc.get_objects():
        if id(it) in addresses:
            parts = gc.get_referents(it)
            arrays = [sys.getrefcount(part) for part in parts if type(part) is numpy.ndarray]
            # The table of types keeps weak references; naming does not.
            count = 0 if type(it) is weakref.ReferenceType else sys.getrefcount(it)
            found[id(it)] = Facts(type(it).__name__, [id(part) for part in parts], count, arrays)
    return found


def tracked() -> int:
    """How many objects the collector knows, without the reports of the looks."""
    return sum(type(it) is not _native.CycleReport for it in gc.get_objects())


def build(make: Any, seed: int) -> tuple[dict[int, Names], int]:
    """Make garbage; the names that are expected of each object, by address, and that of the hub."""
    hub: Hub = [numpy.ones(100)]
    hub.append(hub)
    expected: dict[int, Names] = {}
    for it, names in make(random.Random(seed), hub):
        hub.append(it)
        expected[id(it)] = names
    return expected, id(hub)


@pytest.fixture
def other_threads_wait() -> Iterator[None]:
    """Those of pytest-xdist make objects when a message comes."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("collector_paused", "other_threads_wait")
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_naming_touches_nothing(make: Any, seed: int) -> None:
    known = {id(it) for it in gc.get_objects()}
    expected, hub = build(make, seed)
    garbage = {id(it) for it in gc.get_objects()} - known
    assert hub in garbage
    before = facts(garbage)
    count = tracked()
    report = _native.look(["any"])
    assert tracked() == count
    # Not what has taken the address of an object of the test runner's since.
    after = facts(set(before))
    assert after.keys() == before.keys()
    changed = [(before[it], after[it]) for it in before if after[it] != before[it]]
    assert not changed
    for leak in report.leaks:
        for step in leak.cycle:
            named = step.edge != "an internal reference"
            assert named or step.type_name.endswith("_iterator"), leak.cycle
    graph = json.loads(report.to_json())["leaks"][0]["graph"]
    numbers = {int(dict(n["details"])["address"], 16): i for i, n in enumerate(graph["nodes"])}
    names = names_to(graph, numbers[hub])
    for address, wanted in expected.items():
        if wanted:
            assert wanted <= names.get(numbers[address], set()), (wanted, names)


def names_to(graph: Any, hub: int) -> dict[int, Names]:
    """The names of the references to the hub, directly or through a cell that others share."""
    cells = {i for i, node in enumerate(graph["nodes"]) if node["type_name"] == "cell"}
    full = {edge["from"] for edge in graph["edges"] if edge["to"] == hub} & cells
    names: dict[int, Names] = {}
    for edge in graph["edges"]:
        if edge["to"] == hub or edge["to"] in full:
            names.setdefault(edge["from"], set()).add(edge["name"])
    return names


def attribute_names(chance: random.Random, most: int) -> list[str]:
    names = [f"{chance.choice('abcdefgh')}{i}" for i in range(chance.randint(1, most))]
    chance.shuffle(names)
    return names


def fill(it: Any, chance: random.Random, hub: Hub, names: list[str]) -> Names:
    """Set attributes in any order, one of them the hub, and delete some again."""
    names = chance.sample(names, len(names))
    held = chance.choice(names)
    for name in names:
        setattr(it, name, hub if name == held else chance.choice([None, 1, [], name]))
    for name in chance.sample(names, len(names) // 3):
        if name != held:
            delattr(it, name)
    return {f".{held}"}


def a_class(*bases: type, **members: Any) -> Any:
    return type("Thing", bases, members)


@maker
def instances(chance: random.Random, hub: Hub) -> Iterator[tuple[Any, Names]]:
    thing = a_class()
    names = attribute_names(chance, 12)
    for _ in range(5):
        it = thing()
        yield it, fill(it, chance, hub, names)


@maker
def instances_with_many_attributes(chance: random.Random, hub: Hub) -> Iterator[tuple[Any, Names]]:
    thing = a_class()
    for _ in range(3):
        it = thing()
        yield it, fill(it, chance, hub, [f"many{i}" for i in range(chance.randint(25, 60))])


@maker
def instances_with_keys_of_their_own(
    chance: random.Random, hub: Hub
) -> Iterator[tuple[Any, Names]]:
    thing = a_class()
    for i in range(12):
        it = thing()
        yield it, fill(it, chance, hub, [f"own{i}_{j}" for j in range(chance.randint(1, 6))])


@maker
def instances_with_a_dict(chance: random.Random, hub: Hub) -> Iterator[tuple[Any, Names]]:
    thing = a_class()
    names = attribute_names(chance, 12)
    for _ in range(4):
        it = thing()
        if chance.random() < 0.3:
            vars(it)
        held = fill(it, chance, hub, names)
        if chance.random() < 0.5:
            vars(it)
        if chance.random() < 0.3:
            it.__dict__ = dict(vars(it))
        if chance.random() < 0.3:
            vars(it)["late"] = None
        yield it, held


@maker
def instances_of_another_class(chance: random.Random, hub: Hub) -> Iterator[tuple[Any, Names]]:
    thing, other = a_class(), a_class()
    fill(other(), chance, [], attribute_names(chance, 6))
    it = thing()
    names = fill(it, chance, hub, attribute_names(chance, 6))
    it.__class__ = other
    yield it, names


@maker
def slots(chance: random.Random, hub: Hub) -> Iterator[tuple[Any, Names]]:
    names = attribute_names(chance, 12)
    thing = a_class(__slots__=names)
    derived = a_class(thing, __slots__=["more"])
    with_dict = a_class(thing)
    for one in (thing, derived, with_dict):
        it = one()
        yield it, fill(it, chance, hub, names)
    it = with_dict()
    fill(it, chance, [], names)
    yield it, fill(it, chance, hub, ["extra", "other"])
    # A slot of another class is no attribute of this one.
    odd = a_class(odd=vars(thing)[names[0]])()
    yield odd, fill(odd, chance, hub, ["extra", "other"])


@dataclasses.dataclass
class Record:
    first: Any
    second: Any = None
    third: Any = dataclasses.field(default_factory=list)


@maker
def dataclass_instances(chance: random.Random, hub: Hub) -> Iterator[tuple[Any, Names]]:
    yield Record(hub), {".first"}
    yield Record(None, third=hub), {".third"}
    it = Record(1, hub)
    del it.first
    yield it, {".second"}


@maker
def subclasses(chance: random.Random, hub: Hub) -> Iterator[tuple[Any, Names]]:
    for base in (dict, list, tuple, Exception, set, collections.deque, int, str, type):
        thing = a_class(base)
        it = thing("T", (), {}) if base is type else thing()
        yield it, fill(it, chance, hub, attribute_names(chance, 5))
    numbers = a_class(int)
    for value in (-(10**40), -1, 10**20):
        it = numbers(value)
        yield it, fill(it, chance, hub, attribute_names(chance, 5))
    it = a_class(tuple)((1, [], 3, hub))
    fill(it, chance, [], attribute_names(chance, 5))
    yield it, {"[3]"}


@maker
def containers(chance: random.Random, hub: Hub) -> Iterator[tuple[Any, Names]]:
    place = chance.randint(0, 99)
    items: Hub = [None] * place + [hub] + [None] * (100 - place)
    yield collections.deque(items), {f"[{place}]"}
    deque = a_class(collections.deque)(items)
    deque.other = hub
    yield deque, {f"[{place}]", ".other"}
    hashable = a_class(list, __hash__=object.__hash__)
    member = hashable([hub])
    yield member, {"[0]"}
    yield {1, member, "x"}, set()
    yield frozenset([member]), set()
    yield {"held": hub}, {"['held']"}
    yield collections.OrderedDict(held=hub), {"['held']"}


def function_of(value: Any) -> Any:
    def function(first: Any = 1, second: Any = value, *, third: Any = None) -> Any:
        return value

    return function


def plain(first: Any = 1, *, second: Any = None) -> None:
    local: Any = first
    del local


@maker
def functions(chance: random.Random, hub: Hub) -> Iterator[tuple[Any, Names]]:
    yield function_of(hub), {"closure variable 'value'", "default argument 'second'"}
    copy: Any = types.FunctionType(plain.__code__, {}, "copy", (hub,))
    copy.kept = hub
    yield copy, {"default argument 'first'"}
    yield functools.partial(print, hub), set()
    yield types.MethodType(plain, hub), {".__self__"}
    yield types.CellType(), set()


def generate(first: Any, /, *others: Any, key: Any, **more: Any) -> Generator[Any, None, None]:
    local = key
    shared = [first]
    inner: Any = lambda: (shared, key)  # noqa: E731
    yield 1
    del local
    yield inner


async def work(first: Any, key: Any = None) -> None:
    local = first  # noqa: F841
    await Pause()


async def generate_later(first: Any) -> AsyncGenerator[Any, None]:
    local = first
    yield 1
    yield local


class Pause:
    def __await__(self) -> Generator[Any, Any, Any]:
        yield


def delegate(inner: Any) -> Generator[Any, None, None]:
    yield from inner


def generator(hub: Hub) -> Generator[Any, None, None]:
    return generate(hub, 1, key=hub, other=3)


@maker
def generators(chance: random.Random, hub: Hub) -> Iterator[tuple[Any, Names]]:
    yield generator(hub), {"local 'first'"}
    it = generator(hub)
    next(it)
    yield it, {"local 'first'", "local 'local'", "local 'key'"}
    it = generator(hub)
    next(it)
    next(it)
    yield it, {"local 'first'", "local 'key'"}
    it = generator(hub)
    list(it)
    yield it, set()
    it = generator(hub)
    it.close()
    yield it, {"local 'first'"} if (3, 12) <= sys.version_info < (3, 14) else set()
    it = generator(hub)
    next(it)
    it.close()
    yield it, set()
    it = generator(hub)
    outer = delegate(it)
    next(outer)
    yield outer, set()
    free = [(yield_ for yield_ in [hub])]
    yield free[0], set()


@maker
def coroutines(chance: random.Random, hub: Hub) -> Iterator[tuple[Any, Names]]:
    it: Coroutine[Any, Any, None] = work(hub)
    it.send(None)
    yield it, {"local 'first'", "local 'local'"}
    it = work(1, key=hub)
    it.send(None)
    yield it, {"local 'key'"}
    it = work(hub)
    it.send(None)
    it.close()
    yield it, set()


@maker
def async_generators(chance: random.Random, hub: Hub) -> Iterator[tuple[Any, Names]]:
    yield generate_later(hub), {"local 'first'"}
    it = generate_later(hub)
    with pytest.raises(StopIteration):
        it.asend(None).send(None)
    yield it, {"local 'first'", "local 'local'"}


@maker
def asked_for_their_frames(chance: random.Random, hub: Hub) -> Iterator[tuple[Any, Names]]:
    it: Any = generator(hub)
    next(it)
    names = {"local 'first'", "local 'key'"}
    yield it.gi_frame, set() if SINCE_3_11 else names
    yield it, names if SINCE_3_11 else set()
    it = generator(hub)
    next(it)
    it.gi_frame.f_locals.clear() if sys.version_info < (3, 13) else it.gi_frame.f_locals
    yield it, {"local 'first'", "local 'key'"}
    it = generate_later(hub)
    yield it.ag_frame, set() if SINCE_3_11 else {"local 'first'"}
    yield it, {"local 'first'"} if SINCE_3_11 else set()


def frame_with(held: Any, ask: bool, chance: random.Random) -> types.FrameType:
    cell = held
    function: Any = lambda: cell  # noqa: E731
    frame = sys._getframe()
    if ask:
        assert frame.f_locals
        chance.shuffle(kept := list(frame.f_locals))
        del kept
    del function
    return frame


def failing(first: Any, deep: int) -> None:
    if deep:
        failing(first, deep - 1)
    raise KeyError


@maker
def frames(chance: random.Random, hub: Hub) -> Iterator[tuple[Any, Names]]:
    for ask in (False, True):
        yield frame_with(hub, ask, chance), {"local 'held'", "local 'cell'"}
    namespace: dict[str, Any] = {"sys": sys}
    names: dict[str, Any] = {"held": hub}
    exec("frame = sys._getframe()", namespace, names)
    yield names.pop("frame"), set()
    yield names, {"['held']"}


@maker
def tracebacks(chance: random.Random, hub: Hub) -> Iterator[tuple[Any, Names]]:
    try:
        failing(hub, chance.randint(0, 3))
    except KeyError as error:
        first: Any = error.__traceback__
        last = first.tb_next
        # Without the frame of this test, which is alive.
        yield error.with_traceback(last), set()
        while last is not None:
            frame = last.tb_frame
            if chance.random() < 0.3:
                assert frame.f_locals
            if chance.random() < 0.3:
                frame.clear()
                yield frame, set()
            else:
                yield frame, {"local 'first'"}
            last = last.tb_next
        del frame, first


@maker
def nothing_at_all(chance: random.Random, hub: Hub) -> Iterator[tuple[Any, Names]]:
    yield a_class()(), set()


@pytest.mark.usefixtures("collector_paused")
def test_audit_hooks_hear_nothing() -> None:
    """A hook is code of the program; ``f_code``, ``gi_code``, ``tb_frame`` and more call it."""
    heard: list[Any] = []
    listening = [False]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if listening[0] and event == "object.__getattr__":
            heard.append(arguments[1])

    sys.addaudithook(hook)
    for make in MAKERS:
        build(make, 1)
    listening[0] = True
    _native.look(["any"])
    listening[0] = False
    assert heard == []
