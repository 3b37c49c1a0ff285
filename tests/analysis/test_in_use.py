"""Memory that garbage has a view of, but which something in use has too, is nobody's leak."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from cyclescope import _native
from support.marks import needs_torch

numpy = pytest.importorskip("numpy")
SIZE = 1 << 20


class Batch:
    """In a cycle with itself."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.me = self


def tensor() -> Any:
    import torch

    return torch.zeros(SIZE, dtype=torch.uint8)


def array() -> Any:
    return numpy.zeros(SIZE, dtype=numpy.uint8)


def part(whole: Any) -> Any:
    return whole[:1000]


def detached(whole: Any) -> Any:
    return whole.detach()


CASES = [
    pytest.param(array, part, id="part of an array"),
    pytest.param(tensor, part, id="part of a tensor", marks=needs_torch),
    pytest.param(tensor, detached, id="detached tensor", marks=needs_torch),
]


@pytest.mark.usefixtures("collector_paused")
@pytest.mark.parametrize(("make", "view"), CASES)
def test_a_look_leaves_it_out(make: Callable[[], Any], view: Callable[[Any], Any]) -> None:
    whole = make()
    Batch(view(whole))
    assert not _native.look(["any"]).leaks
    Batch(view(make()))
    (leak,) = _native.look(["any"]).leaks
    assert leak.bytes_held == SIZE
    assert len(whole) == SIZE


@pytest.mark.usefixtures("collector_paused")
@pytest.mark.parametrize(("make", "view"), CASES)
def test_so_does_a_look_at_frozen_garbage(
    make: Callable[[], Any], view: Callable[[Any], Any]
) -> None:
    whole = make()
    Batch(view(whole))
    gc.freeze()
    try:
        assert not _native.find(["any"], [], True).leaks
        Batch(view(make()))
        gc.freeze()
        (leak,) = _native.find(["any"], [], True).leaks
    finally:
        gc.unfreeze()
    assert leak.frozen == 1
    assert leak.bytes_held == SIZE
    assert len(whole) == SIZE


@needs_torch
@pytest.mark.usefixtures("collector_paused")
def test_memory_is_in_use_then() -> None:
    whole = tensor()
    Batch(whole.detach())
    block = {"address": whole.data_ptr(), "size": SIZE, "state": "active_allocated"}
    segment = {
        "address": whole.data_ptr(),
        "total_size": SIZE,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "blocks": [block],
    }
    memory = _native.device_memory("cpu", (2 * SIZE, SIZE, 0.0), [segment], [])
    assert [(row.bytes, "garbage" in row.name) for row in memory.rows if row.bytes] == [
        (SIZE, False)
    ]
