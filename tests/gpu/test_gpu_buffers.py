"""Buffers of RMM and cuda.core on a real GPU, and classes that a program registers."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import cyclescope
from support.nodes import Holder

pytestmark = pytest.mark.gpu

MIB = 2**20


def rows(report: Any) -> list[Any]:
    return sorted((b.device, b.bytes, b.confirmed) for k in report.leaks for b in k.buffers)


def check(make: Callable[[int], Any], counted: Callable[[], int]) -> None:
    """Leaks are found, by a check and by the watch, with the bytes that the allocator counts."""
    make(1)
    gc.collect()
    before = counted()
    Holder([make(8 * MIB), make(MIB)])
    grown = counted() - before
    expected = [("cuda:0", MIB, True), ("cuda:0", 8 * MIB, True)]
    assert rows(cyclescope.find_tensor_cycles()) == expected
    assert grown == 9 * MIB
    assert counted() == before

    seen: list[Any] = []
    with cyclescope.observe_tensor_cycles(seen.append) as watch:
        for _ in range(10):
            Holder(make(MIB))
            gc.collect()
        watch.flush()
    assert [row for report in seen for row in rows(report)] == [("cuda:0", MIB, True)] * 10
    assert counted() == before

    alive = make(MIB)
    Holder(alive)
    assert cyclescope.find_tensor_cycles().leaks == []
    heap = cyclescope.heap()
    assert sum(b.bytes for b in heap.buffers if "alive" in b.owner) == MIB


def test_buffers_of_rmm() -> None:
    rmm: Any = pytest.importorskip("rmm", reason="RMM is not installed")
    counting = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource())
    check(
        lambda size: rmm.DeviceBuffer(size=size, mr=counting),
        lambda: int(counting.allocation_counts.current_bytes),
    )


def test_columns_of_cudf() -> None:
    cudf: Any = pytest.importorskip("cudf", reason="cuDF is not installed")
    Holder(cudf.DataFrame({"a": [0] * MIB}))
    report = cyclescope.find_tensor_cycles()
    assert sum(size for _, size, _ in rows(report)) == 8 * MIB


def test_buffers_of_cuda_core() -> None:
    core: Any = pytest.importorskip("cuda.core", reason="cuda.core is not installed")
    if "cuda.core._memory._buffer" not in sys.modules:
        pytest.skip("this version of cuda.core has its buffers elsewhere")
    torch.zeros(1, device="cuda:0")
    device = core.Device(0)
    device.set_current()
    stream = device.default_stream
    resource = core.DeviceMemoryResource(device)

    def counted() -> int:
        stream.sync()
        return int(resource.attributes.used_mem_current)

    check(lambda size: resource.allocate(size, stream=stream), counted)


class Memory:
    """Memory of a program's own: here, that of a tensor which nobody else knows."""

    def __init__(self, size: int) -> None:
        storage: Any = torch.zeros(size, dtype=torch.uint8, device="cuda:0").untyped_storage()
        self.address, self.size, self.index = storage.data_ptr(), size, 0
        self.keep = storage


def test_a_class_that_is_registered() -> None:
    cyclescope.register_framework(
        Memory, device="cuda", pointer="address", nbytes="size", device_index="index"
    )
    # The tensor's storage is the same memory, and counts once.
    check(Memory, lambda: torch.cuda.memory_allocated(0))


def test_what_the_driver_does_not_know_is_no_memory() -> None:
    class Liar:
        def __init__(self) -> None:
            self.address, self.size = 0x1000, 100

    cyclescope.register_framework(Liar, device="cuda", pointer="address", nbytes="size")
    Holder(Liar())
    assert cyclescope.find_tensor_cycles().leaks == []
