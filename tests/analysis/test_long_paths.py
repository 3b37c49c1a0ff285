"""Heaps in which the path to each of many arrays is long: a linked list of them."""

from __future__ import annotations

import sys
from typing import Any

import numpy
import pytest

import cyclescope


class Node:
    def __init__(self, after: Any, size: int) -> None:
        self.after = after
        self.array = numpy.zeros(size, dtype=numpy.uint8)


class Slotted:
    __slots__ = ("after", "array")

    def __init__(self, after: Any, size: int) -> None:
        self.after = after
        self.array = numpy.zeros(size, dtype=numpy.uint8)


WITH_DICTS = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="each object has a dict, which is counted too"
)


@pytest.mark.parametrize("kind", [pytest.param(Node, marks=WITH_DICTS), Slotted])
def test_what_is_left_out_of_each_path_is_counted(kind: Any) -> None:
    first_size, length = 100_000, 400
    head = None
    for number in range(length):
        head = kind(head, first_size + length - number)  # The last has the smallest.
    rows = cyclescope.heap().buffers
    ours = {
        row.bytes - first_size: row for row in rows if first_size < row.bytes <= first_size + 400
    }
    assert len(ours) == length
    for size, row in ours.items():
        position = size - 1
        words = row.owner.split(" → ")
        assert words[0].startswith("local `head` in `test_what_is_left_out"), row.owner
        assert words[-2:] == [".array", "ndarray"], row.owner
        omitted = [word for word in words if "more" in word]
        assert (
            words.count(f".after ({kind.__name__})")
            + sum(int(word.split()[1].replace(",", "")) for word in omitted)
            == position
        ), row.owner
        assert row.alone
    del head
