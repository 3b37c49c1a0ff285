"""Random programs with several owners of objects, some of which only grow: who does is known."""

from __future__ import annotations

import collections
import random
from collections.abc import Callable
from typing import Any


class Part:
    """What an entry has."""

    __slots__ = ("values",)

    def __init__(self, number: int) -> None:
        self.values = [number] * 12


class Entry:
    """An instance with attributes."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.part = Part(number)
        self.name = f"entry {number}"


ENTRIES: dict[str, Callable[[int], Any]] = {
    "instance": Entry,
    "tuple": lambda number: (number, Part(number), [number, number + 1]),
    "list": lambda number: [number, [number] * 20],
    "dict": lambda number: {"number": number, "part": Part(number)},
    "closure": lambda number: lambda: (number, Part),
    "string": lambda number: f"line {number} " * 25,
    "bytes": lambda number: b"%08d" % number * 30,
}

STRINGS = ("string", "bytes")


class Owner:
    """Keeps entries in one of several ways, without or within bounds."""

    def __init__(self, chance: random.Random) -> None:
        self.leaks = chance.random() < 0.5
        self.make = chance.choice(sorted(ENTRIES))
        kinds = ["list", "deque", "dict", "nested"]
        if self.make in STRINGS:
            # A dictionary of these is unknown to the collector, up to 3.13.
            kinds = ["list", "deque"]
        self.kind = chance.choice(kinds)
        self.each = chance.randint(60, 150)
        self.bound = chance.choice(["window", "cleared", "replaced", "limit", "warm", "stops"])
        self.period = chance.randint(5, 70)
        self.noise = chance.choice([0, 0, 200])
        self.scratch: list[Any] = []
        self.kept: Any = {} if self.kind == "dict" else []
        if self.kind == "deque":
            maxlen = 10**6 if not self.leaks and self.bound == "limit" else None
            self.kept = collections.deque(maxlen=maxlen)
        elif not self.leaks and self.bound == "limit":
            self.max_entries = 10**6
        self.chance = chance

    def step(self, step: int) -> None:
        """Make and keep what a step makes, beside what comes and goes."""
        count = self.chance.randrange(self.noise + 1)
        self.scratch = [ENTRIES[self.make](number) for number in range(count)]
        if not self.leaks:
            if self.bound == "warm" and step >= 12:
                return
            if self.bound == "stops" and step >= 60:
                return
            if self.bound == "replaced" or (self.bound == "cleared" and step % self.period == 0):
                self.kept.clear()
        made = [ENTRIES[self.make](step * self.each + number) for number in range(self.each)]
        if self.kind == "dict":
            self.kept.update((step * self.each + at, entry) for at, entry in enumerate(made))
        elif self.kind == "nested":
            self.kept.append(made)
        else:
            self.kept.extend(made)
        if not self.leaks and self.bound == "window":
            if self.kind == "dict":
                for at in range(self.each):
                    self.kept.pop((step - self.period) * self.each + at, None)
            elif self.kind == "nested":
                del self.kept[: -self.period]
            else:
                while len(self.kept) > self.period * self.each:
                    self.kept.popleft() if self.kind == "deque" else self.kept.pop(0)


class Run:
    """Owners in attributes, which is how they are told."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        for number in range(chance.randint(1, 4)):
            setattr(self, f"owner_{number}", Owner(chance))

    @property
    def leaking(self) -> set[str]:
        """The names of the owners that only grow."""
        return {name for name, owner in vars(self).items() if owner.leaks}

    def step(self, number: int) -> None:
        """One step of each."""
        for owner in vars(self).values():
            owner.step(number)
