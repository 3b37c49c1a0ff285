"""Objects that keep themselves in a cycle."""

from __future__ import annotations

import inspect

import numpy


class Node:
    """An object in a cycle of one that holds an array."""

    def __init__(self, mib: int = 1) -> None:
        self.array = numpy.zeros(mib * 2**20, numpy.uint8)
        self.me: Node | None = self


class Holder:
    """An object in a cycle of one that holds what it is given."""

    def __init__(self, held: object) -> None:
        self.held = held
        self.me = self


SOURCE = "\n" + inspect.getsource(Node)
"""``Node`` as text, for programs that run in a process of their own and have imported ``numpy``."""
