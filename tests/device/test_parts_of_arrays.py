"""An array and tensors on parts of it are one buffer, as large as what is freed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import cyclescope

torch: Any = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("no_garbage")

SIZE = 200_000
KEPT: list[Any] = []

PARTS: dict[str, Callable[[Any], list[Any]]] = {
    "the start": lambda it: [torch.from_numpy(it[:10])],
    "the end": lambda it: [torch.from_numpy(it[100_000:])],
    "some": lambda it: [torch.from_numpy(it[at : at + 10]) for at in (10, 300, 700)],
    "every other": lambda it: [torch.from_numpy(it[::2])],
    "halves": lambda it: [torch.from_numpy(it[:100_000]), torch.from_numpy(it[100_000:])],
    "parts that overlap": lambda it: [
        torch.from_numpy(it[:120_000]),
        torch.from_numpy(it[80_000:]),
    ],
    "an array too": lambda it: [torch.from_numpy(it[:10]), it[20:]],
}


class Owner:
    def __init__(self, array: Any, parts: list[Any]) -> None:
        self.array, self.parts = array, parts
        self.done = self.finish

    def finish(self) -> None:
        pass


def make(parts: Callable[[Any], list[Any]]) -> weakref.ref[Any]:
    array = numpy.zeros(SIZE, dtype=numpy.float64)
    Owner(array, parts(array))
    return weakref.ref(array)


def held(how: str, parts: Callable[[Any], list[Any]]) -> int:
    reports: list[cyclescope.CycleReport] = []
    if how == "check":
        made = make(parts)
        reports.append(cyclescope.find_tensor_cycles(devices="any"))
    else:
        with cyclescope.observe_tensor_cycles(reports.append, devices="any"):
            made = make(parts)
            gc.collect()
    assert (made() is None) == (not KEPT)
    leaks = [leak for report in reports for leak in report.leaks]
    return sum(buffer.bytes for leak in leaks for buffer in leak.buffers)


@pytest.mark.parametrize("how", ["check", "watch"])
@pytest.mark.parametrize("parts", PARTS)
def test_an_array_is_counted_with_the_tensors_on_parts_of_it(how: str, parts: str) -> None:
    assert held(how, PARTS[parts]) == SIZE * 8


@pytest.mark.parametrize("how", ["check", "watch"])
def test_tensors_that_overlap_are_counted_once(how: str) -> None:
    def make(how: str) -> int:
        array = numpy.zeros(SIZE)
        tensors = [torch.from_numpy(array), torch.from_numpy(array[100_000:])]
        del array
        return held(how, lambda _: tensors)

    assert make(how) >= SIZE * 8


@pytest.mark.parametrize("how", ["check", "watch"])
def test_an_array_that_something_else_keeps_is_not_counted(how: str) -> None:
    def keep_array(it: Any) -> list[Any]:
        KEPT.append(it)
        return [torch.from_numpy(it[:10])]

    def keep_tensor(it: Any) -> list[Any]:
        KEPT.append(torch.from_numpy(it))
        return [torch.from_numpy(it[100_000:])]

    for parts in (keep_array, keep_tensor):
        assert held(how, parts) < SIZE * 8
        KEPT.clear()
