"""Arrays of CuPy on a real GPU, by themselves and over the memory of a tensor."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch

import cyclescope
from support.nodes import Holder

pytestmark = pytest.mark.gpu

cupy: Any = importlib.import_module("cupy")

MIB = 2**20


def test_cupy_arrays() -> None:
    def leak() -> tuple[int, int]:
        array = cupy.zeros((1024, 1024), dtype=cupy.float32)
        Holder([array, array[3:5], array.reshape(-1)])
        return array.data.mem.ptr, array.data.mem.size

    # What PyTorch's allocator counts says nothing of CuPy's.
    torch.zeros(1, device="cuda:0")
    pool = cupy.get_default_memory_pool()
    used = pool.used_bytes()
    pointer, size = leak()
    assert pool.used_bytes() > used
    (found,) = cyclescope.find_tensor_cycles().leaks
    assert pool.used_bytes() == used
    assert found.bytes_freed is None
    (buffer,) = found.buffers
    assert (buffer.device, buffer.confirmed) == ("cuda:0", True)
    assert (buffer.pointer, buffer.bytes) == (pointer, size)
    assert buffer.dtype == "float32"


def test_a_block_that_a_live_cupy_array_shares_is_not_claimed() -> None:
    alive = cupy.zeros(MIB, dtype=cupy.float32)
    Holder(alive[:10])
    assert cyclescope.find_tensor_cycles().leaks == []
    assert int(alive.sum()) == 0


def test_cupy_arrays_over_the_memory_of_a_tensor() -> None:
    """The memory is PyTorch's: counted once, and not at all while a tensor lives on it."""
    alive = torch.zeros(4 * MIB, device="cuda:0")
    Holder(cupy.asarray(alive))
    assert cyclescope.find_tensor_cycles().leaks == []

    def leak() -> None:
        tensor = torch.zeros(4 * MIB, device="cuda:0")
        Holder([tensor, cupy.asarray(tensor)])

    leak()
    (found,) = cyclescope.find_tensor_cycles().leaks
    assert found.bytes_held == found.bytes_freed == 16 * MIB
    assert int(alive.sum()) == 0
