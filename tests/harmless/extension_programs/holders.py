"""How a program is registered, and the objects in cycles that hold what it is about."""

from __future__ import annotations

import importlib.util
import weakref
from collections.abc import Callable
from typing import Any

import numpy

PROGRAMS: dict[str, Callable[[], object]] = {}
NEEDS: dict[str, tuple[str, ...]] = {}


def program(*needs: str) -> Callable[[Callable[[], object]], Callable[[], object]]:
    def put(function: Callable[[], object]) -> Callable[[], object]:
        PROGRAMS[function.__name__] = function
        NEEDS[function.__name__] = needs
        return function

    return put


def missing(name: str) -> list[str]:
    """What a program needs and is not installed."""
    return [need for need in NEEDS[name] if importlib.util.find_spec(need) is None]


class Told:
    """No container, so not the collector's own: says when it dies."""

    __slots__ = ("__weakref__", "name")

    def __init__(self, name: str) -> None:
        self.name = name

    def __del__(self) -> None:
        print("dies", self.name)


class Holder:
    """Refers to itself, an array and other things, so that it dies with a collection only."""

    def __init__(self, name: str, *things: Any) -> None:
        self.name = name
        self.things: Any = things
        self.array: Any = numpy.zeros(16)
        self.told = Told(name)
        self.me: Any = self
        self.more: Any = None
        weakref.finalize(self, print, "gone", name).atexit = False

    def method(self, *args: Any) -> Any:
        return self, args

    def none(self, *args: Any) -> None:
        return None


class Loud(Holder):
    """Uses what it holds when it is finalized."""

    def __del__(self) -> None:
        print("del", self.name, type(self.things).__name__, self.array.size)
        if self.more is not None:
            self.more(self)
