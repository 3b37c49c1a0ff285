"""Which groups of buffers grow: by when those that are alive were first seen.

A leak adds buffers in nearly every interval and gives none back, so some of each age are alive.
What is replaced has none but the youngest, a warm cache none but the oldest, a window of fixed
length as many as before. That is robust against sizes that differ from step to step.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise

WARM_UP = 2
"""What the first so many samples see, such as optimizer state, is no growth."""

WINDOW = 10
"""So many intervals between samples are looked at."""

NEEDED = WARM_UP + WINDOW + 1
"""So many samples it takes to tell anything."""

MOST = 0.8
"""The part of the intervals that must show growth."""

STEADY = 0.5
"""The later half of the window must grow by at least this part of what the earlier half did:
a cache that fills up slows down."""


@dataclass
class Group:
    """Buffers of one kind, and how many of them there were at each sample."""

    born: dict[Hashable, int] = field(default_factory=dict)
    """For each that is alive, the number of the sample that saw it first."""
    bytes: dict[Hashable, int] = field(default_factory=dict)
    totals: list[tuple[int, int]] = field(default_factory=list)
    """Number and bytes, at each sample."""


class Cohorts:
    """Counts what is alive, sample by sample."""

    def __init__(self) -> None:
        self.samples = 0
        self.groups: dict[Hashable, Group] = {}

    def add(self, alive: Iterable[tuple[Hashable, Hashable, int]]) -> None:
        """Take note of a sample: for each buffer its group, what names it, and its bytes."""
        seen: dict[Hashable, dict[Hashable, int]] = {key: {} for key in self.groups}
        for key, name, size in alive:
            seen.setdefault(key, {})[name] = size
        for key, members in seen.items():
            group = self.groups.setdefault(key, Group(totals=[(0, 0)] * self.samples))
            group.born = {name: group.born.get(name, self.samples) for name in members}
            group.bytes = members
            group.totals.append((len(members), sum(members.values())))
        self.samples += 1

    def growing(self) -> dict[Hashable, Group]:
        """The groups that grow."""
        return {key: group for key, group in self.groups.items() if self._grows(group)}

    def survivors(self, group: Group) -> dict[int, list[Hashable]]:
        """What came after the warm-up, but not in the last interval, by when it was first seen."""
        found: dict[int, list[Hashable]] = {}
        for name, born in group.born.items():
            if WARM_UP <= born < self.samples - 1:
                found.setdefault(born, []).append(name)
        return found

    def _grows(self, group: Group) -> bool:
        if self.samples < NEEDED:
            return False
        first = self.samples - WINDOW - 1
        counts = [count for count, _ in group.totals[first:]]
        ages = self.survivors(group)
        aged = sum(1 for born in range(first, self.samples - 1) if born in ages)
        return aged >= MOST * WINDOW and is_growing(counts)


def is_growing(values: list[int]) -> bool:
    """True if values rise most of the time, and in the later half about as much as before."""
    rises = [later - earlier for earlier, later in pairwise(values)]
    if not rises or sum(1 for rise in rises if rise > 0) < MOST * len(rises):
        return False
    middle = len(values) // 2
    earlier, later = values[middle] - values[0], values[-1] - values[middle]
    return later > 0 and later >= STEADY * earlier
