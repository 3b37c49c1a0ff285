"""What the host programs are made of; see the package."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy

PROGRAMS: dict[str, Callable[[], None]] = {}
UNWATCHED: set[str] = set()
"""Programs that throw every callback out."""
EARLY: set[str] = set()
"""Programs that begin before the watch, so that what they register for the exit comes after it."""
ENDINGS: set[str] = set()
"""Programs about their own end: nothing more may be run in them."""
WATCHES: list[Any] = []
"""The watch, where there is one."""


def program(function: Callable[[], None]) -> Callable[[], None]:
    PROGRAMS[function.__name__] = function
    return function


def throws_callbacks_out(function: Callable[[], None]) -> Callable[[], None]:
    UNWATCHED.add(function.__name__)
    return program(function)


def begins_early(function: Callable[[], None]) -> Callable[[], None]:
    EARLY.add(function.__name__)
    return program(function)


def ends(function: Callable[[], None]) -> Callable[[], None]:
    ENDINGS.add(function.__name__)
    return program(function)


class Node:
    """An object in a cycle of one, with an array."""

    def __init__(self, name: Any = None) -> None:
        self.name = name
        self.me: Any = self
        self.array: Any = numpy.zeros(16)
        # Reading an object makes it one, on some versions of CPython, and the collector counts it.
        self.__dict__  # noqa: B018


class Loud(Node):
    """Says when it is finalized."""

    def __del__(self) -> None:
        print("del", self.name)


class Acts(Node):
    """Does something when it is finalized."""

    def __init__(self, action: Callable[[Acts], object]) -> None:
        super().__init__()
        self.action = action

    def __del__(self) -> None:
        self.action(self)


def alive(kind: type = Node) -> int:
    return sum(type(thing) is kind for thing in gc.get_objects())


def state() -> None:
    """Print all that a program can see of the collector after a collection."""
    others = [c for c in gc.callbacks if type(c).__name__ != "Hook"]
    print("flags", gc.get_debug(), "garbage", len(gc.garbage), "callbacks", len(others))
    print("nodes", alive(), alive(Loud), alive(Acts), "enabled", gc.isenabled())


def comparable(info: dict[str, Any]) -> dict[str, Any]:
    """Of what CPython tells of a collection, what does not differ from run to run.

    From 3.15 on that has the time it took, and how many objects it went through, which are more
    where more modules are imported.
    """
    return {key: value for key, value in info.items() if key not in ("candidates", "duration")}


def others_first(callback: Callable[[str, dict[str, int]], object]) -> None:
    gc.callbacks.insert(0, callback)


def aftermath() -> None:
    """Nothing stays behind in later collections either."""
    for _ in range(3):
        Node()
        gc.collect()
    state()
