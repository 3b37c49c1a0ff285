"""Garbage found without collecting: the same objects that the collector finds, and never others."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import random
import sys
import threading
import time
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Any

import numpy
import pytest

import cyclescope
from cyclescope import _native
from support.breakers import FRAMEWORKS, Owner, buffer, suspended_generator

pytestmark = pytest.mark.usefixtures("paused")


HIDES_DICTS = sys.version_info[:2] == (3, 13)
"""The collector does not visit an instance's ``__dict__`` while the values lie in the instance. It
visits the values (``PyObject_VisitManagedDict`` in Objects/dictobject.c), and the dictionary goes
with the instance."""


def found() -> set[int]:
    """Addresses of what the second way finds, without what is hidden from the collector."""
    things = _native.unreachable_objects()
    return {id(thing) for thing in things if not (HIDES_DICTS and is_hidden(thing))}


def is_hidden(thing: object) -> bool:
    """True for a dictionary whose values are visited elsewhere."""
    return type(thing) is dict and bool(thing) and not gc.get_referents(thing)


def saved() -> set[int]:
    """Addresses of what the collector finds, which is destroyed afterwards."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    addresses = {id(thing) for thing in gc.garbage}
    gc.garbage.clear()
    gc.collect()
    return addresses


def agree() -> int:
    """Compare both ways object for object; the number of objects."""
    ours = found()
    theirs = saved()
    assert ours == theirs
    return len(ours)


class Node:
    """An object with attributes."""

    def method(self) -> None: ...


class Slots:
    __slots__ = ("__weakref__", "a", "b")
    a: Any
    b: Any


def ring() -> None:
    nodes = [Node() for _ in range(10)]
    for one, other in zip(nodes, nodes[1:] + nodes[:1], strict=True):
        vars(one)["next"] = other


def closure() -> None:
    def countdown(n: int) -> int:
        return countdown(n - 1) if n else 0

    countdown(3)


def exception() -> None:
    try:
        raise ValueError("kept")
    except ValueError as error:
        kept = error
    assert kept.__traceback__ is not None


def frame() -> None:
    here = sys._getframe()
    assert here.f_locals["here"] is here


def class_made_at_run_time() -> None:
    class Local:
        instance: Any = None

    Local.instance = Local()


def containers() -> None:
    things: list[Any] = [deque(), defaultdict(list), OrderedDict(), set(), {}, []]
    things[0].append(things)
    things[1]["all"].append(things)
    things[2]["all"] = things
    things[3].add(functools.partial(print, things))
    things[4][(1, "a")] = (things, frozenset([functools.partial(print, things)]))
    things[5].extend([things, iter(things), map(str, things), memoryview(b"x"), slice(things)])


def bound_methods_and_weakrefs() -> None:
    node: Any = Node()
    node.callback = node.method
    node.weak = weakref.ref(node, lambda _: None)
    node.proxy = weakref.proxy(node)
    node.gone = weakref.ref(Node())
    node.dead_proxy = weakref.proxy(Node())


def slots() -> None:
    one, other = Slots(), Slots()
    one.a, other.b = other, one
    one.b = types.SimpleNamespace(one=one)


def hostile() -> None:
    """Every question that can be asked of these objects raises."""

    class Hostile:
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError("asked")

        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared")

        def __hash__(self) -> int:
            raise AssertionError("hashed")

        __repr__ = __bool__ = __len__ = __iter__ = __hash__  # type: ignore[assignment]

    things: list[Any] = [Hostile()]
    things.append(things)
    object.__setattr__(things[0], "all", things)


MAKERS = [
    ring,
    closure,
    exception,
    frame,
    class_made_at_run_time,
    containers,
    bound_methods_and_weakrefs,
    slots,
    hostile,
]


@pytest.mark.parametrize("make", MAKERS)
def test_it_finds_what_the_collector_finds(make: Callable[[], None]) -> None:
    agree()
    assert agree() == 0
    make()
    assert agree() > 0
    assert agree() == 0


def random_graph(dice: random.Random) -> list[Any]:
    """Objects of many types that refer to each other at random."""
    kinds: list[Callable[[], Any]] = [
        Node,
        Slots,
        list,
        dict,
        set,
        deque,
        types.SimpleNamespace,
        lambda: ValueError("x"),
        lambda: type("Made", (), {}),
        lambda: types.FunctionType((lambda: 0).__code__, {}),
        lambda: types.ModuleType("made"),
        lambda: numpy.empty(1, dtype=object),
    ]
    nodes = [dice.choice(kinds)() for _ in range(dice.randint(2, 80))]
    for node in nodes:
        for _ in range(dice.choice([0, 1, 1, 2, 3])):
            other = dice.choice(nodes)
            if dice.random() < 0.3:
                other = dice.choice(
                    [
                        (other, dice.choice(nodes)),
                        functools.partial(print, other),
                        types.MethodType(print, other),
                        types.CellType(other),
                        iter([other]),
                        weakref.ref(node) if hasattr(node, "__weakref__") else None,
                    ]
                )
            if isinstance(node, list | deque):
                node.append(other)
            elif isinstance(node, dict):
                node[dice.randint(0, 5)] = other
            elif isinstance(node, set):
                node.add(functools.partial(print, other))
            elif isinstance(node, numpy.ndarray):
                node[0] = other
            else:
                setattr(node, dice.choice("ab"), other)
    return nodes


@pytest.mark.parametrize("lot", range(int(os.environ.get("TEST_CASES", "4"))))
def test_random_graphs(lot: int) -> None:
    total = 0
    for seed in range(lot * 40, lot * 40 + 40):
        dice = random.Random(seed)
        nodes = random_graph(dice)
        kept = dice.sample(nodes, dice.choice([0, 0, 1, 2]))
        if dice.random() < 0.5:
            gc.collect(dice.choice([0, 1]))  # they are in different generations from now on
        del nodes
        total += agree()
        del kept
        total += agree()
    assert total > 500


# In the middle of things.


def test_in_a_running_generator() -> None:
    def generator() -> Iterator[int]:
        local = Node()
        ring()
        yield agree()
        vars(local)["me"] = local
        yield agree()

    counts = list(generator())
    assert counts[0] >= 10
    assert counts[1] == 0


def test_in_a_generator_that_only_its_caller_holds() -> None:
    def inner() -> Generator[int, None, None]:
        mine: Any = [Node()]
        mine.append(mine)
        yield agree()
        yield len(mine)

    def outer() -> Generator[int, None, None]:
        yield from inner()

    assert list(outer()) == [0, 2]


def test_in_coroutines() -> None:
    async def numbers() -> AsyncIterator[int]:
        mine: Any = [Node()]
        mine.append(mine)
        for i in range(3):
            ring()
            found()
            await asyncio.sleep(0)
            yield i
            assert len(mine) == 2

    async def work(results: list[int]) -> None:
        mine: Any = [Node()]
        mine.append(mine)
        async for i in numbers():
            results.append(i)
            agree()
        assert len(mine) == 2

    async def main() -> list[int]:
        results: list[int] = []
        await asyncio.gather(*(work(results) for _ in range(4)))
        return results

    assert len(asyncio.run(main())) == 12


def test_in_a_finalizer_outside_a_collection() -> None:
    seen: list[int] = []

    class Dies:
        def __init__(self) -> None:
            self.mine = Node()
            vars(self.mine)["me"] = self.mine

        def __del__(self) -> None:
            ours = found()
            seen.append(len({id(self), id(self.mine)} & ours))

    Dies()
    assert seen == [0]


def test_in_a_finalizer_in_a_collection() -> None:
    live = [Node() for _ in range(10)]
    seen: list[int] = []

    class Dies:
        def __init__(self) -> None:
            self.me = self
            self.live = live

        def __del__(self) -> None:
            seen.append(len({id(self), *map(id, live)} & found()))
            seen.append(len(cyclescope.find_tensor_cycles(devices="any").leaks))

    Dies()
    gc.collect()
    assert seen == [0, 0]


def test_under_settrace() -> None:
    counts: list[int] = []

    def trace(_frame: types.FrameType, event: str, _argument: object) -> Any:
        if event == "line":
            counts.append(agree())
        return trace

    def traced() -> int:
        mine: Any = [Node()]
        mine.append(mine)
        ring()
        mine = len(mine)
        return int(mine)

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        assert traced() == 2
    finally:
        sys.settrace(before)
    assert len(counts) >= 5
    assert max(counts) >= 10


def test_with_threads() -> None:
    """Whatever is unreachable stays so: the collector must find all of it, and maybe more."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            mine: Any = [Node()]
            mine.append(mine)
            while not stop.wait(0.001):
                closure()
                ring()
                exception()
                assert len(mine) == 2
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    looks = total = 0
    try:
        while looks < 30 or total == 0:
            time.sleep(0.001)
            ours = found()
            assert not ours - saved()
            looks += 1
            total += len(ours)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures


def test_in_a_comparison_and_a_sort_key() -> None:
    """C code holds references that nobody else does."""

    class Key:
        def __init__(self) -> None:
            self.me = self

        def __lt__(self, other: object) -> bool:
            assert not {id(self), id(other)} & found()
            return False

    assert len(sorted([Key() for _ in range(5)])) == 5


# Nothing is kept alive.


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_references_are_as_before(framework: str) -> None:
    live = Owner(buffer(framework))
    live.suspended = live

    def counts() -> list[int]:
        things = [live, live.tensor, Owner, Node, type(live.tensor), live.__dict__, gc.callbacks]
        return [sys.getrefcount(thing) for thing in things]

    def use() -> None:
        other = Owner(live.tensor)
        other.suspended = other
        del other
        found()
        ring()
        cyclescope.find_tensor_cycles(devices="any")
        with cyclescope.observe_tensor_cycles(lambda report: None, devices="any"):
            other = Owner(buffer(framework))
            other.suspended = other
            del other
            gc.collect()
        gc.collect()

    use()
    before = counts()
    for _ in range(6):
        use()
    assert counts() == before


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_was_reported_is_gone(framework: str) -> None:
    class Local(Owner):
        pass

    owner = Local(buffer(framework))
    owner.suspended = owner
    held = owner.tensor.untyped_storage() if framework == "torch" else owner.tensor
    weaks = [weakref.ref(thing) for thing in (owner, owner.tensor, held, Local)]
    del owner, held
    ours = _native.unreachable_objects()
    assert any(type(thing) is Local for thing in ours)
    ours.clear()
    del Local
    report = cyclescope.find_tensor_cycles(devices="any")
    assert len(report.leaks) == 1
    gc.collect()
    assert [weak() for weak in weaks] == [None] * 4


def test_looking_leaves_no_objects_behind() -> None:
    def use() -> None:
        ring()
        suspended_generator(buffer("numpy"))
        class_made_at_run_time()
        found()
        cyclescope.find_tensor_cycles(devices="any")

    for _ in range(3):
        use()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(12):
        use()
    gc.collect()
    assert len(gc.get_objects()) - before < 10
