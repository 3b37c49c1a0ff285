"""Programs in which an object has random owners, to ask what keeps it and then to delete just that.

A program can be built again from its number, so that each deletion is tried on a heap of its own.
"""

from __future__ import annotations

import ast
import functools
import gc
import itertools
import re
import sys
import types
import weakref
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

import numpy

import cyclescope

MODULE = "judged"

KINDS = [
    *("node", "node", "slotted", "list", "dict", "tuple", "deque", "set", "frozenset"),
    *(
        "closure",
        "partial",
        "method",
        "default",
        "generator",
        "cache",
        "class",
        "exception",
        "objects",
    ),
]
TARGETS = ["thing", "array", "list"]


class Node:
    """Has attributes in a dictionary."""

    def method(self) -> None: ...


class Slotted:
    __slots__ = ("__weakref__", "a", "b", "c", "d")


class Thing:
    """What is asked about."""

    def method(self) -> None: ...


class Things(list[Any]):
    """A list that can be referred to weakly."""


class Owners:
    """The module of a program and a weak reference to the object that is asked about."""

    def __init__(self, number: int) -> None:
        random = Random(number)
        self.module = types.ModuleType(MODULE)
        sys.modules[MODULE] = self.module
        self.target = self._build(random)

    def _build(self, random: Random) -> weakref.ref[Any]:
        kind = random.choice(TARGETS)
        make: dict[str, Callable[[], Any]] = {
            "thing": Thing,
            "array": lambda: numpy.zeros(8),
            "list": lambda: Things([1]),
        }
        target = make[kind]()
        held = [target]
        for _ in range(random.choice([0, 1, 2, 4, 8])):
            made = random.choice(KINDS)
            things = random.choices(held, k=random.choice([1, 1, 2, 3]))
            if random.random() < 0.5:
                things[0] = target
            if made == "cache":
                things = [target]
            if random.random() < 0.2 and isinstance(target, numpy.ndarray):
                held.append(target[random.randrange(4) :])
                continue
            try:
                held.append(holder(made, things))
            except TypeError:  # It cannot be hashed.
                held.append(holder("list", things))
        holders = held[1:] or [target]
        for index in range(random.choice([1, 1, 2, 3])):
            setattr(self.module, f"variable_{index}", random.choice(holders))
        if random.random() < 0.4:
            for name in random.sample(["best", "last", "now"], random.randint(1, 3)):
                setattr(self.module, name, target)
        if random.random() < 0.3:
            trainer = self.module.trainer = Node()  # type: ignore[attr-defined]
            trainer.best = trainer.last = target  # type: ignore[attr-defined]
            trainer.me = trainer  # type: ignore[attr-defined]
        if random.random() < 0.3 and kind == "thing":
            target.me = target
            target.owner = random.choice(held)
        if random.random() < 0.15:  # No collection frees this.
            loop = numpy.empty(1, object)
            loop[0] = [loop, random.choice(held)]
            if random.random() < 0.5:
                self.module.loop = loop  # type: ignore[attr-defined]
            del loop
        if random.random() < 0.3:  # Garbage, too.
            ring: list[Any] = [random.choice(held)]
            ring.append(ring)
        return weakref.ref(target)

    def close(self) -> None:
        vars(self.module).clear()
        sys.modules.pop(MODULE, None)


def holder(kind: str, things: list[Any]) -> Any:
    """An object that holds some others."""
    first = things[0]
    match kind:
        case "node":
            node = Node()
            for name, thing in zip("abc", things, strict=False):
                setattr(node, name, thing)
            if len(things) == 2:
                vars(node)  # Makes the dictionary.
            return node
        case "slotted":
            slotted = Slotted()
            for name, thing in zip("abc", things, strict=False):
                setattr(slotted, name, thing)
            return slotted
        case "list":
            return list(things)
        case "dict":
            return {f"key {index}": thing for index, thing in enumerate(things)}
        case "tuple":
            return tuple(things)
        case "deque":
            return deque(things)
        case "set":
            return set(things)
        case "frozenset":
            return frozenset(things)
        case "closure":
            return lambda: first
        case "default":

            def function(value: Any = first) -> Any:
                return value

            return function
        case "partial":
            return functools.partial(print, *things)
        case "method":
            return types.MethodType(print, first)
        case "generator":

            def items(value: Any) -> Any:
                yield
                yield value

            suspended = items(first)
            next(suspended)
            return suspended
        case "cache":
            return cached(first)
        case "class":
            return type("Made", (), {"attribute": first})
        case "objects":
            array = numpy.empty(len(things), object)
            for index, thing in enumerate(things):
                array[index] = thing
            return array
        case "exception":
            return ValueError(*things)
    raise AssertionError(kind)


def cached(value: Any) -> Any:
    given = [value]
    function = functools.lru_cache(maxsize=4)(given.pop)
    function()
    return function


# Reading what is named, and deleting it.


def follow(thing: Any, edge: str) -> Any:
    """What a reference leads to."""
    for part in re.findall(r"\.\w+|\[[^\]]*\]|(?:closure|default|local)[^.\[]*'\w+'", edge):
        if part.startswith("."):
            thing = getattr(thing, part[1:])
        elif part.startswith("["):
            thing = thing[ast.literal_eval(part[1:-1])]
        else:
            name = part.split("'")[1]
            if part.startswith("closure"):
                thing = thing.__closure__[thing.__code__.co_freevars.index(name)].cell_contents
            elif part.startswith("default"):
                thing = thing.__defaults__[0]
            else:
                thing = thing.gi_frame.f_locals[name]
    return thing


class Ambiguous(Exception):
    """Words that fit several elements of a set."""


def delete(keeper: cyclescope.Keeper) -> None:
    """Deletes the reference that is named."""
    steps = keeper.path.steps
    assert keeper.path.root == "module", keeper.words
    thing: Any = sys.modules[keeper.path.root_words.removeprefix("module `").removesuffix("`")]
    for step, after in itertools.pairwise(steps[: keeper.step + 1]):
        if step.edge == "an element":
            alike = [it for it in thing if type(it).__name__ == after.type_name.rpartition(".")[2]]
            if len(alike) != 1:
                raise Ambiguous
            thing = alike[0]
        else:
            thing = follow(thing, step.edge)
    edge = steps[keeper.step].edge
    if edge == "an element":
        name = steps[keeper.step + 1].type_name.rpartition(".")[2]
        alike = [it for it in thing if type(it).__name__ == name]
        if len(alike) != 1:
            raise Ambiguous
        thing.discard(alike.pop())
    elif edge.startswith("["):
        thing[ast.literal_eval(edge[1:-1])] = None
    else:
        assert re.fullmatch(r"\.\w+", edge), edge
        delattr(thing, edge[1:])


def ask(owners: Owners) -> cyclescope.Retention:
    return cyclescope.why_alive(owners.target())


def check_keepers(number: int) -> int:
    """Asks what keeps an object, deletes just that, and less; how many references it was."""
    is_garbage = not is_alive(number, without_module=False)
    is_kept_by_itself = is_alive(number, without_module=True)
    owners = Owners(number)
    try:
        report = ask(owners)
        count = len(report.keepers)
        if is_garbage:
            assert report.keepers == [], str(report)
            assert not report.is_uncollectable, str(report)
            return 0
        if is_kept_by_itself and count == 0:
            assert report.is_uncollectable, str(report)
            assert "no collection" in str(report)
            return 0
        assert not report.is_uncollectable, str(report)
        is_enough = report.is_enough
        if not is_kept_by_itself:
            assert is_enough, str(report)
        words = " ".join(str(report).split())
        for keeper in report.keepers:
            assert keeper.words in words, words
        end = ", and the garbage collector frees it:" * report.by_collection
        told = f"Remove all of these {count}{end or ' to free it:'}" in words
        assert told == (is_enough and count > 1), words
    finally:
        owners.close()
        del owners
        gc.collect()
    for left in [None, *range(count)]:
        owners = Owners(number)
        try:
            for index, keeper in enumerate(report.keepers):
                if index != left:
                    delete(keeper)
            if left is None and is_enough and not report.by_collection:
                assert owners.target() is None, f"it takes a collection\n{report}"
            for _ in range(3):  # Finalizers of garbage, such as a generator's, may put it off.
                gc.collect()
            is_gone = owners.target() is None
            assert is_gone == (is_enough and left is None), f"without {left}, {is_gone=}\n{report}"
        except Ambiguous:
            return 0
        finally:
            owners.close()
            del owners
            gc.collect()
    return count


def is_alive(number: int, *, without_module: bool) -> bool:
    """Whether the object outlives a collection, with the program's variables or without."""
    owners = Owners(number)
    try:
        if without_module:
            owners.close()
        for _ in range(3):
            gc.collect()
        return owners.target() is not None
    finally:
        owners.close()
        del owners
        gc.collect()


def main(first: int, count: int) -> None:
    """Checks some programs, in a process of its own: what holds itself through C is never freed."""
    gc.disable()
    several = 0
    for number in range(first, first + count):
        try:
            several += check_keepers(number) > 1
        except Exception as error:
            raise AssertionError(f"program {number}") from error
    print(several)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
