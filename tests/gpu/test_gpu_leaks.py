"""What is said of leaks on a real GPU: the device, the pointer, the driver's word, exact bytes."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable
from ctypes import CDLL, byref, c_void_p
from pathlib import Path
from typing import Any

import pytest
import torch

import common
import cyclescope
from support.nodes import Holder

pytestmark = pytest.mark.gpu

MIB = 2**20


def leak_awaitable(mib: int = 64) -> int:
    """Leaks as the fixture ``awaitable_leak`` does; the address of the tensor."""
    awaitable_leak: Any = common.load("awaitable_leak")
    awaitable = awaitable_leak.AwaitableTensor("cuda:0", mib)
    awaitable_leak.AwaitableTensorWithViewCallBack(awaitable, view_dim=4).wait()
    return int(awaitable.wait().data_ptr())


def freed_by(action: Callable[[], object]) -> int:
    """By how much the allocator's count is smaller after ``action``."""
    before = torch.cuda.memory_allocated(0)
    action()
    return before - torch.cuda.memory_allocated(0)


def check_awaitable(leak: cyclescope.Leak, pointer: int, freed: int) -> None:
    assert freed == 64 * MIB
    assert leak.bytes_freed == freed
    assert leak.bytes_held == 64 * MIB
    assert "_callback" in leak.summary
    (buffer,) = leak.buffers
    assert buffer.device == "cuda:0"
    assert buffer.confirmed
    assert buffer.pointer == pointer
    assert buffer.bytes == 64 * MIB
    assert (buffer.dtype, buffer.shape) == ("float32", (16 * MIB,))


def test_find_reports_the_awaitable_leak() -> None:
    pointer = leak_awaitable()
    reports: list[cyclescope.CycleReport] = []
    freed = freed_by(lambda: reports.append(cyclescope.find_tensor_cycles()))
    (leak,) = reports[0].leaks
    check_awaitable(leak, pointer, freed)
    assert cyclescope.find_tensor_cycles().leaks == []


def test_observe_reports_the_awaitable_leak() -> None:
    reports: list[cyclescope.CycleReport] = []
    with cyclescope.observe_tensor_cycles(reports.append) as watch:
        pointer = leak_awaitable()
        freed = freed_by(gc.collect)
        assert watch.flush(60)
    (report,) = reports
    (leak,) = report.leaks
    check_awaitable(leak, pointer, freed)


def test_warn_reports_the_awaitable_leak(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.WARNING, "cyclescope"),
        cyclescope.warn_tensor_cycles(report_dir=tmp_path) as watch,
    ):
        for _ in range(3):
            leak_awaitable()
            assert freed_by(gc.collect) == 64 * MIB
        assert watch.flush(60)
        (tally,) = watch.leaks
    assert tally.count == 3
    assert tally.bytes == 3 * 64 * MIB
    (record,) = [r for r in caplog.records if r.name == "cyclescope"]
    assert "64.0 MiB" in record.getMessage()
    assert "_callback" in record.getMessage()
    (page,) = tmp_path.glob("*.html")
    assert "cuda:0" in page.read_text()


def test_each_leak_of_one_garbage_has_its_own_bytes() -> None:
    common.load("awaitable_leak").leak("cuda:0", 64)
    common.load("two_nodes").leak("cuda:0", 8)
    report = cyclescope.find_tensor_cycles()
    assert [leak.bytes_held for leak in report.leaks] == [64 * MIB, 16 * MIB]
    assert [leak.bytes_freed for leak in report.leaks] == [64 * MIB, 16 * MIB]


def test_bytes_freed_include_the_autograd_graph_behind_a_scalar() -> None:
    weights = [torch.randn(1024, 1024, device="cuda:0", requires_grad=True) for _ in range(4)]

    def step() -> None:
        x = torch.randn(4096, 1024, device="cuda:0")
        for weight in weights:
            x = torch.nn.functional.gelu(x @ weight)
        Holder(x.square().mean())

    step()
    gc.collect()
    step()
    reports: list[cyclescope.CycleReport] = []
    freed = freed_by(lambda: reports.append(cyclescope.find_tensor_cycles()))
    (leak,) = reports[0].leaks
    assert leak.bytes_held == 4
    assert leak.bytes_freed == freed
    # Each layer keeps its input and the input of its activation: 16 MiB each.
    assert freed >= 8 * 16 * MIB


def test_views_of_one_storage_are_one_buffer() -> None:
    def leak() -> int:
        whole = torch.zeros(4 * MIB, device="cuda:0")
        Holder([whole, whole[:10], whole.view(2, -1), whole.untyped_storage()])
        return whole.data_ptr()

    pointer = leak()
    (found,) = cyclescope.find_tensor_cycles().leaks
    assert [(b.pointer, b.bytes) for b in found.buffers] == [(pointer, 16 * MIB)]
    assert found.bytes_freed == 16 * MIB


def test_a_small_view_holds_its_whole_storage() -> None:
    Holder(torch.zeros(4 * MIB, device="cuda:0")[100:101])
    (found,) = cyclescope.find_tensor_cycles().leaks
    assert found.bytes_held == found.bytes_freed == 16 * MIB


def test_a_storage_that_a_live_tensor_shares_is_not_claimed() -> None:
    alive = torch.zeros(4 * MIB, device="cuda:0")
    Holder(alive.detach())
    assert cyclescope.find_tensor_cycles().leaks == []
    assert int(alive.sum()) == 0


def test_pinned_host_memory_is_not_on_the_gpu() -> None:
    Holder(torch.zeros(MIB, pin_memory=True))
    assert cyclescope.find_tensor_cycles().leaks == []
    Holder(torch.zeros(MIB, pin_memory=True))
    (found,) = cyclescope.find_tensor_cycles(devices="any").leaks
    (buffer,) = found.buffers
    assert (buffer.device, buffer.confirmed, buffer.bytes) == ("pinned", True, 4 * MIB)
    for devices, count in (("pinned", 1), ("cpu", 1), ("shared", 0), ("gpu", 0)):
        Holder(torch.zeros(MIB, pin_memory=True))
        assert len(cyclescope.find_tensor_cycles(devices=devices).leaks) == count


def test_pinned_and_shared_memory_count_once_in_a_heap() -> None:
    shared: Any = torch.zeros(MIB + 1)
    kept = [torch.zeros(MIB, pin_memory=True), shared.share_memory_()]
    views = [each.numpy() for each in kept]
    heap = cyclescope.heap()
    sizes = {4 * MIB, 4 * MIB + 4}
    ours = sorted((b.device, b.bytes) for b in heap.buffers if b.bytes in sizes)
    assert ours == [("pinned", 4 * MIB), ("shared", 4 * MIB + 4)]
    assert len(views) == 2


def test_a_jagged_tensor_is_its_values() -> None:
    def make() -> None:
        values = [torch.ones(MIB, device="cuda:0"), torch.ones(2 * MIB, device="cuda:0")]
        Holder(torch.nested.nested_tensor(values, layout=torch.jagged))

    make()
    cyclescope.find_tensor_cycles()
    reports: list[cyclescope.CycleReport] = []
    before = torch.cuda.memory_allocated(0)
    make()
    grown = torch.cuda.memory_allocated(0) - before
    freed = freed_by(lambda: reports.append(cyclescope.find_tensor_cycles()))
    held = sum(leak.bytes_held for leak in reports[0].leaks)
    assert freed == grown
    # The allocator rounds the few bytes of the offsets up.
    assert 12 * MIB <= held <= freed
    assert freed - held < 4096


def test_a_freed_storage_is_silent() -> None:
    def leak() -> None:
        tensor = torch.zeros(MIB, device="cuda:0")
        tensor.untyped_storage().resize_(0)
        Holder(tensor)

    leak()
    assert cyclescope.find_tensor_cycles().leaks == []


def test_fake_tensors_that_claim_a_gpu_are_silent() -> None:
    common.load("cycle_holds_fake_tensor").leak("cuda:0", 64)
    assert cyclescope.find_tensor_cycles().leaks == []


def test_other_gpus_are_left_alone() -> None:
    Holder(torch.zeros(MIB, device="cuda:0"))
    assert cyclescope.find_tensor_cycles(devices="cuda:1").leaks == []


def test_a_collection_on_a_thread_without_a_context() -> None:
    driver = CDLL("libcuda.so.1")
    pointer = leak_awaitable()
    contexts: list[int | None] = []
    reports: list[cyclescope.CycleReport] = []

    def collect() -> None:
        context = c_void_p()
        assert driver.cuCtxGetCurrent(byref(context)) == 0
        contexts.append(context.value)
        gc.collect()

    with cyclescope.observe_tensor_cycles(reports.append) as watch:
        thread = threading.Thread(target=collect)
        thread.start()
        thread.join()
        assert watch.flush(60)
    assert contexts == [None], "the thread had a context, so this proves nothing"
    (leak,) = reports[0].leaks
    check_awaitable(leak, pointer, 64 * MIB)


def test_a_watch_sees_a_generator_that_breaks_its_own_cycle() -> None:
    generator = common.load("generator_holds_itself")
    reports: list[cyclescope.CycleReport] = []
    with cyclescope.observe_tensor_cycles(reports.append) as watch:
        for _ in range(2):
            generator.leak("cuda:0", 64)
            assert freed_by(gc.collect) == 64 * MIB
        assert watch.flush(60)
    assert len(reports) == 2
    for report in reports:
        (leak,) = report.leaks
        assert leak.bytes_held == leak.bytes_freed == 64 * MIB
        assert leak.buffers[0].confirmed


def test_find_sees_a_generator_that_breaks_its_own_cycle() -> None:
    common.load("generator_holds_itself").leak("cuda:0", 64)
    (leak,) = cyclescope.find_tensor_cycles().leaks
    assert leak.bytes_held == leak.bytes_freed == 64 * MIB
