"""What the random programs are made of: objects of every kind that a collection can meet.

Nothing here depends on addresses: own objects are hashed by their number, and the log names them by
type and number.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import pickle
import random
import sys
import types
import weakref
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy


class World:
    """The state of the program that runs; everything in it is made anew for each."""

    def __init__(self) -> None:
        self.random = random.Random(0)
        self.log: list[Any] = []
        self.kept: list[Any] = []
        """What finalizers have resurrected, and other things the program holds on to."""
        self.held: list[Any] = []
        """Weak references: each must outlive what it refers to, or its callback is not called."""
        self.arrays: list[weakref.ref[Any]] = []
        """Object arrays. The collector does not know them, so their cycles are cut at the end."""
        self.serial = 0
        self.quiet = True
        """Between two programs nothing is logged and no finalizer acts."""
        self.act: Callable[[Any], None] = lambda it: None
        """What a finalizer or a callback does; ``it`` is None where there is no object."""

    def number(self) -> int:
        self.serial += 1
        return self.serial

    def event(self, *what: Any) -> None:
        if not self.quiet:
            self.log.append(what)


world = World()


class Node:
    """An object with a number. Numbers are hashes too, so that sets have the same order always."""

    def __init__(self) -> None:
        self.n = world.number()

    def __hash__(self) -> int:
        return getattr(self, "n", 0)


class Final(Node):
    """Tells of its end, and acts."""

    def __del__(self) -> None:
        if not world.quiet:
            world.event("del", label(self))
            world.act(self)


class Slotted:
    __slots__ = ("__weakref__", "a", "b", "n")

    def __init__(self) -> None:
        self.n = world.number()

    def __hash__(self) -> int:
        return int(self.n)


class SlottedFinal(Slotted):
    __slots__ = ()

    def __del__(self) -> None:
        if not world.quiet:
            world.event("del", label(self))
            world.act(self)


@dataclass(eq=False)
class Record:
    n: int
    a: Any = None
    b: Any = None


@dataclass(eq=False, slots=True)
class SlottedRecord:
    n: int
    a: Any = None
    b: Any = None


class Token(int):
    """No container, so not the collector's: dies by its reference count, with what holds it."""

    __slots__ = ()

    def __del__(self) -> None:
        if not world.quiet:
            world.event("token", int(self))


class Meta(type):
    """Classes made at run time; they tell of their end as well."""

    def __del__(cls) -> None:
        if not world.quiet:
            world.event("class", cls.__dict__.get("n"))
            if cls.__dict__.get("acts"):
                world.act(cls)


class Array(numpy.ndarray[Any, Any]):
    """Has a ``__dict__``, tells of its end, and acts."""

    def __del__(self) -> None:
        if not world.quiet:
            world.event("array", self.size)
            if self.size % 4 == 0:
                world.act(self)


class Error(Exception):
    def __init__(self) -> None:
        super().__init__()
        self.n = world.number()


OWN = frozenset(
    ["Node", "Final", "Slotted", "SlottedFinal", "Record", "SlottedRecord", "Error", "Made", "Meta"]
)
"""Names of the program's own classes whose instances the collector knows."""


def label(it: Any) -> str:
    name = type(it).__name__
    if name == "Meta":
        return f"Meta {it.__dict__.get('n')}"
    if name in OWN:
        return f"{name} {getattr(it, 'n', None)}"
    if issubclass(type(it), (int, str)):
        return f"{name} {it}"
    return name


def own(things: list[Any]) -> list[str]:
    """The labels of the program's own objects among these, in order."""
    return [label(it) for it in things if type(it).__name__ in OWN]


def has_number_as_hash(it: Any) -> bool:
    return issubclass(type(it), (Node, Slotted))


# Containers, to be filled by `link`.


def made_class() -> Any:
    bases: list[tuple[type, ...]] = [(), (Node,), (Final,), (list,)]
    dice = world.random
    return Meta(
        "Made", dice.choice(bases), {"n": world.number(), "acts": dice.random() < 0.3, "x": None}
    )


def instance_of_new_class() -> Any:
    return made_class()()


def closure() -> Any:
    cell = None
    n = world.number()

    def function() -> Any:
        return cell, n

    return function


def exception() -> Any:
    """With a traceback, whose frame refers to the exception."""
    try:
        raise Error
    except Error as error:
        mine = error
    return mine


def suspended() -> Any:
    """A generator that keeps what is sent to it."""

    def keep(n: int) -> Iterator[None]:
        kept: list[Any] = []
        try:
            while True:
                kept.append((yield))
        finally:
            if not world.quiet:
                world.event("finally", n)
                world.act(None)

    it = keep(world.number())
    next(it)
    return it


def module() -> Any:
    return types.ModuleType("made")


def object_array() -> Any:
    array = numpy.empty(3, object)
    world.arrays.append(weakref.ref(array))
    return array


def array_with_attributes() -> Any:
    return numpy.zeros(world.random.randint(1, 9)).view(Array)


COMMON: list[Callable[[], Any]] = [
    Node,
    Node,
    Final,
    Final,
    Final,
    Slotted,
    SlottedFinal,
    list,
    dict,
]
CONTAINERS: list[Callable[[], Any]] = [
    *COMMON,
    collections.deque,
    set,
    collections.OrderedDict,
    functools.partial(collections.defaultdict, list),
    lambda: Record(world.number()),
    lambda: SlottedRecord(world.number()),
    closure,
    closure,
    exception,
    suspended,
    suspended,
    made_class,
    instance_of_new_class,
    module,
    object_array,
    array_with_attributes,
]


def link(owner: Any, target: Any) -> None:
    """Have one object refer to another, in one of the ways that it can."""
    dice = world.random
    kind = type(owner)
    if kind is list or kind is collections.deque:
        owner.append(target)
    elif isinstance(owner, dict):
        owner[len(owner)] = target
    elif kind is set:
        if has_number_as_hash(target):
            owner.add(target)
        else:
            member = Node()
            member.r0 = target  # type: ignore[attr-defined]
            owner.add(member)
    elif kind is types.FunctionType:
        if owner.__closure__ and dice.random() < 0.6:
            owner.__closure__[0].cell_contents = target
        else:
            owner.attribute = target
    elif kind is types.GeneratorType:
        owner.send(target)
    elif kind is numpy.ndarray:
        if owner.dtype == object:
            owner[dice.randrange(3)] = target
    elif kind is Slotted or kind is SlottedFinal or kind is SlottedRecord:
        setattr(owner, dice.choice("ab"), target)
    elif kind is Error and isinstance(target, Exception) and target is not owner:
        owner.__cause__ = target
    else:
        setattr(owner, f"r{dice.randrange(4)}", target)


# What refers to one thing from the beginning.


def method_of(target: Any) -> Any:
    return types.MethodType(label, target)


def partial_of(target: Any) -> Any:
    return functools.partial(print, target, key=(target,))


def generator_of(target: Any) -> Any:
    def generate(n: int) -> Iterator[Any]:
        try:
            yield target
        finally:
            if not world.quiet:
                world.event("finally", n)
                world.act(None)

    it = generate(world.number())
    if world.random.random() < 0.8:
        next(it)
    return it


class Suspend:
    def __await__(self) -> Generator[None, None, None]:
        yield


def coroutine_of(target: Any) -> Any:
    async def wait(n: int) -> Any:
        try:
            await Suspend()
        finally:
            if not world.quiet:
                world.event("finally of a coroutine", n)
                world.act(target)

    it = wait(world.number())
    if world.random.random() < 0.9:
        it.send(None)
    return it


def async_generator_of(target: Any) -> Any:
    async def generate(n: int) -> Any:
        try:
            yield target
        finally:
            if not world.quiet:
                world.event("finally of an async generator", n)

    it: Any = generate(world.number())
    with contextlib.suppress(StopIteration):
        it.__anext__().send(None)
    return it


def frame_of(target: Any) -> Any:
    return sys._getframe()


def traceback_of(target: Any) -> Any:
    try:
        raise Error
    except Error as error:
        return error.__traceback__


def cache_of(target: Any) -> Any:
    cache = functools.lru_cache(maxsize=4)(lambda it: [it])
    if has_number_as_hash(target):
        cache(target)
    else:
        cache.attribute = target  # type: ignore[attr-defined]
    return cache


def can_be_weakly_referred_to(target: Any) -> bool:
    return type(target).__weakrefoffset__ != 0 and not isinstance(target, weakref.ref)


def weak_callback(n: int, acts: bool) -> Callable[[Any], None]:
    def callback(_: Any) -> None:
        if not world.quiet:
            world.event("weak", n)
            if acts:
                world.act(None)

    return callback


def reference_to(target: Any) -> Any:
    if not can_be_weakly_referred_to(target):
        return (target,)
    return weakref.ref(target, weak_callback(world.number(), world.random.random() < 0.4))


def proxy_of(target: Any) -> Any:
    if not can_be_weakly_referred_to(target):
        return [target]
    return weakref.proxy(target, weak_callback(world.number(), world.random.random() < 0.3))


def weak_set_of(target: Any) -> Any:
    if not has_number_as_hash(target):
        return [target]
    return weakref.WeakSet([target])


def weak_values_of(target: Any) -> Any:
    if not can_be_weakly_referred_to(target):
        return [target]
    return weakref.WeakValueDictionary({world.number(): target})


def weak_keys_of(target: Any) -> Any:
    if not has_number_as_hash(target):
        return [target]
    return weakref.WeakKeyDictionary({target: [Token(world.number()), target]})


def hashed(target: Any) -> Any:
    return frozenset([target if has_number_as_hash(target) else Node()])


WRAPPERS: list[Callable[[Any], Any]] = [
    lambda it: (it,),
    lambda it: (it, Token(world.number())),
    lambda it: [it],
    hashed,
    method_of,
    partial_of,
    generator_of,
    generator_of,
    coroutine_of,
    async_generator_of,
    frame_of,
    traceback_of,
    cache_of,
    reference_to,
    proxy_of,
    weak_set_of,
    weak_values_of,
    weak_keys_of,
    lambda it: types.MappingProxyType({"it": it}),
    lambda it: types.SimpleNamespace(it=it),
    lambda it: iter([it, it]),
    lambda it: map(label, [it]),
    lambda it: itertools.chain([it]),
    lambda it: property(it),
    lambda it: staticmethod(it),
    lambda it: types.GenericAlias(list, (it,)),
    lambda it: slice(it, None),
]


# What holds memory.

PICKLED = pickle.dumps(numpy.ones(64), 2)


def view() -> Any:
    return numpy.arange(24.0).reshape(4, 6)[1:, ::2]


BUFFERS: list[Callable[[], Any]] = [
    lambda: numpy.zeros(16),
    view,
    lambda: numpy.frombuffer(bytearray(64), numpy.uint8),
    lambda: numpy.frombuffer(bytes(64), numpy.uint8),
    lambda: pickle.loads(PICKLED),
    lambda: numpy.zeros(8).view(Array),
    lambda: memoryview(bytearray(32)),
    lambda: Token(world.number()),
    lambda: Token(world.number()),
]


def buffer() -> Any:
    """Something that holds memory; most of the time its end is told."""
    dice = world.random
    it = dice.choice(BUFFERS)()
    if type(it) is not Token:
        n = world.number()
        chance = dice.random()
        if chance < 0.4:
            world.held.append(weakref.ref(it, weak_callback(n, chance < 0.1)))
        elif chance < 0.6:
            weakref.finalize(it, world_event, "finalized", n)
    return it


def world_event(*what: Any) -> None:
    world.event(*what)


def add_torch() -> None:
    """Make tensors too."""
    import torch

    torch.set_num_threads(1)

    class Tensor(torch.Tensor):
        def __del__(self) -> None:
            if not world.quiet:
                world.event("tensor", self.numel())
                world.act(self)

    def graph() -> Any:
        leaf = torch.ones(3, requires_grad=True)
        return (leaf * 2).exp()

    def with_gradient() -> Any:
        leaf = torch.ones(3, requires_grad=True)
        (leaf * leaf).sum().backward()  # type: ignore[no-untyped-call]
        return leaf

    def hooked() -> Any:
        leaf = torch.ones(3, requires_grad=True)
        leaf.register_hook(label)  # type: ignore[no-untyped-call]
        return leaf

    tensors: list[Callable[[], Any]] = [
        lambda: torch.zeros(16),
        lambda: torch.zeros(4, 4)[1:, 2],
        lambda: torch.nn.Parameter(torch.zeros(5)),
        lambda: torch.zeros(16).untyped_storage(),
        lambda: torch.zeros(7).as_subclass(Tensor),
        lambda: torch.from_numpy(numpy.zeros(9)),
        graph,
        with_gradient,
        hooked,
    ]
    BUFFERS.extend(tensors * 2)
    CONTAINERS.extend([lambda: torch.zeros(3), lambda: torch.nn.Linear(2, 2), graph] * 2)


def mixture(count: int) -> list[Any]:
    """So many objects, which refer to each other at random."""
    dice = world.random
    things = [dice.choice(CONTAINERS if dice.random() < 0.5 else COMMON)() for _ in range(count)]
    for owner in things:
        for _ in range(1 + (dice.random() < 0.6)):
            target = dice.choice(things)
            chance = dice.random()
            if chance < 0.35:
                target = dice.choice(WRAPPERS)(target)
            elif chance < 0.5:
                target = buffer()
            link(owner, target)
        if dice.random() < 0.1 and can_be_weakly_referred_to(owner):
            world.held.append(
                weakref.ref(owner, weak_callback(world.number(), dice.random() < 0.4))
            )
        elif dice.random() < 0.03 and can_be_weakly_referred_to(owner):
            weakref.finalize(owner, world_event, "finalized", world.number())
    return things
