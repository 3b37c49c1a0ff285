"""Arrays of Numba on a real GPU, by themselves and over the memory of a tensor."""

from __future__ import annotations

import gc
from typing import Any

import numpy
import pytest
import torch

import cyclescope
from support.nodes import Holder

pytestmark = pytest.mark.gpu

cuda: Any = pytest.importorskip("numba.cuda", reason="Numba is not installed")

MIB = 2**20


def in_use() -> int:
    """The bytes that Numba counts itself."""
    allocations = cuda.current_context().memory_manager.allocations
    return sum(allocation.size for allocation in allocations.values())


def leak(mib: int = 8) -> None:
    array = cuda.device_array((mib * MIB // 4,), dtype="float32")
    Holder([array, array[3:5], array.reshape(2, -1)])


def rows(report: Any) -> list[Any]:
    return sorted(
        (b.device, b.dtype, b.bytes, b.confirmed) for k in report.leaks for b in k.buffers
    )


def test_the_bytes_of_a_cycle_are_those_that_numba_counts() -> None:
    before = in_use()
    leak()
    grown = in_use() - before
    report = cyclescope.find_tensor_cycles()
    assert rows(report) == [("cuda:0", "float32", 8 * MIB, True)]
    assert grown == 8 * MIB
    assert in_use() == before


def test_the_watch_sees_each_cycle_go() -> None:
    before = in_use()
    seen: list[Any] = []
    with cuda.defer_cleanup(), cyclescope.observe_tensor_cycles(seen.append) as watch:
        for _ in range(50):
            leak(2)
            gc.collect()
        watch.flush()
    assert sum(size for report in seen for *_, size, _ in rows(report)) == 100 * MIB
    assert in_use() == before


def test_the_watch_sees_most_cycles_where_numba_frees_memory_in_between() -> None:
    """As it does in the midst of every eleventh of these collections, before the watch looks."""
    before = in_use()
    seen: list[Any] = []
    with cyclescope.observe_tensor_cycles(seen.append) as watch:
        for _ in range(50):
            leak(2)
            gc.collect()
        watch.flush()
    assert 80 * MIB <= sum(size for report in seen for *_, size, _ in rows(report)) <= 100 * MIB
    assert in_use() == before


def test_what_looks_like_a_leak_is_none() -> None:
    alive = cuda.device_array((MIB,), dtype="float32")
    Holder(alive[10:20])
    Holder(alive)
    Holder(cuda.device_array((0,), dtype="float32"))
    assert cyclescope.find_tensor_cycles().leaks == []
    alive.copy_to_device(numpy.ones(MIB, numpy.float32))
    assert alive.copy_to_host().sum() == MIB


def test_arrays_over_the_memory_of_a_tensor() -> None:
    """The memory is PyTorch's: counted once, and not at all while a tensor lives on it."""
    alive = torch.ones(4 * MIB, device="cuda:0")
    Holder(cuda.as_cuda_array(alive))
    assert cyclescope.find_tensor_cycles().leaks == []

    def make() -> None:
        tensor = torch.zeros(4 * MIB, device="cuda:0")
        Holder([tensor, cuda.as_cuda_array(tensor)])

    make()
    (found,) = cyclescope.find_tensor_cycles().leaks
    assert found.bytes_held == found.bytes_freed == 16 * MIB
    assert int(alive.sum()) == 4 * MIB


def test_a_tensor_over_the_memory_of_an_array() -> None:
    alive = cuda.device_array((MIB,), dtype="float32")
    Holder(torch.as_tensor(alive, device="cuda:0"))
    (found,) = cyclescope.find_tensor_cycles().leaks
    assert [buffer.lent for buffer in found.buffers] == [True]
    alive.copy_to_device(numpy.ones(MIB, numpy.float32))
    assert alive.copy_to_host().sum() == MIB


def test_what_is_alive() -> None:
    kept = {"w": cuda.device_array((2 * MIB,), dtype="float32")}
    view = kept["w"][:100]
    heap = cyclescope.heap()
    ours = [(b.device, b.bytes) for b in heap.buffers if b.bytes == 8 * MIB]
    assert ours == [("cuda:0", 8 * MIB)]
    assert "8.0 MiB on cuda:0" in cyclescope.why_alive(kept["w"]).to_text()
    assert view.size == 100


def test_what_grows() -> None:
    losses = []
    monitor = cyclescope.LeakMonitor(every=1, min_bytes=0, max_share=float("inf"))
    with monitor:
        for _ in range(40):
            losses.append({"loss": cuda.device_array((256,), dtype="float32")})
            monitor.step()
    (growth,) = monitor.found
    assert "losses" in growth.owner
    assert growth.bytes == 1024 * growth.tensors


def test_no_context_is_made(program: Any) -> None:
    said = program("""
        import gc, json
        from numba import cuda
        from numba.cuda.cudadrv import devices
        import cyclescope

        class Holder:
            def __init__(self):
                self.me = self

        before = cuda.cudadrv.driver.driver.is_initialized
        watch = cyclescope.observe_tensor_cycles(print)
        Holder()
        gc.collect()
        cyclescope.heap()
        cyclescope.find_tensor_cycles()
        watch.stop()
        print(json.dumps([before, cuda.cudadrv.driver.driver.is_initialized]))
    """)
    assert said == [False, False]
