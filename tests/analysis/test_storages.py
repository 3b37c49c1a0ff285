"""Tensors and arrays that are a part of their storage, or share it with others."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import cyclescope
from support.marks import needs_torch

pytestmark = pytest.mark.usefixtures("collector_paused")


class Node:
    """An object that refers to itself."""

    def __init__(self, **held: Any) -> None:
        self.me = self
        self.__dict__.update(held)


def told(make: Callable[[], Node]) -> tuple[str, int]:
    """What is said of the largest buffer, and how many objects hold it."""
    gc.collect()
    make()
    report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
    (leak,) = report.leaks
    lines = [line.strip() for line in str(report).splitlines()]
    said = lines[next(n for n, line in enumerate(lines) if line.startswith("■")) :]
    return " ".join(said[: said.index("")]).removeprefix("■ "), leak.buffers[0].holders


def test_a_whole_array() -> None:
    assert told(lambda: Node(a=numpy.zeros(4))) == (
        "numpy.ndarray float64[4] of 32 bytes on cpu",
        1,
    )


def test_a_part_of_an_array() -> None:
    def make() -> Node:
        whole = numpy.zeros((4, 8), numpy.float32)
        return Node(part=whole[1])

    said, _ = told(make)
    assert said.startswith("numpy.ndarray float32[8] (32 bytes) in a storage of 128 bytes on cpu")


@pytest.mark.parametrize("views", range(4))
@pytest.mark.parametrize("whole_first", [True, False])
def test_an_array_and_its_views_are_counted(views: int, whole_first: bool) -> None:
    """The collector does not know that a view refers to the array, which goes all the same."""

    def make() -> Node:
        whole = numpy.zeros((1000, 64), numpy.float32)
        parts = {"parts": [whole[n] for n in range(views)]}
        return Node(**({"whole": whole} | parts if whole_first else parts | {"whole": whole}))

    said, holders = told(make)
    assert holders == views + 1
    assert "250.0 KiB on cpu" in said
    assert ("shared with" in said) is (views > 0)


def test_fields_of_a_structured_array_are_counted() -> None:
    def make() -> Node:
        whole = numpy.zeros(1000, [("x", "f4"), ("y", "f8")])
        return Node(whole=whole, x=whole["x"], y=whole["y"])

    assert told(make)[1] == 3


def test_elements_of_unknown_size_are_not_computed() -> None:
    said, _ = told(lambda: Node(a=numpy.zeros(4, "S3")))
    assert said == "numpy.ndarray S3[4] of 12 bytes on cpu"


@needs_torch
@pytest.mark.parametrize("views", range(4))
def test_tensors_of_one_storage_are_counted(views: int) -> None:
    import torch

    def make() -> Node:
        whole = torch.zeros(4096)
        parts = [whole[: 2048 - n] for n in range(views)]
        return Node(v=whole[:2048], parts=parts)

    others = ["", ", shared with 1 other object"]
    others += [f", shared with {n} other objects" for n in range(2, 4)]
    said = "torch.Tensor float32[2048] (8.0 KiB) in a storage of 16.0 KiB on cpu"
    assert told(make) == (said + others[views], views + 1)


@needs_torch
def test_an_expanded_tensor() -> None:
    import torch

    said, holders = told(lambda: Node(e=torch.zeros(1).expand(100, 100)))
    assert said.startswith("torch.Tensor float32[100, 100] (expanded) in a storage of 4 bytes")
    assert holders == 1
