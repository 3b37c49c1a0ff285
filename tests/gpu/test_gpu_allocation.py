"""What allocated a tensor on a real GPU, and what its release freed beyond its own bytes."""

from __future__ import annotations

import gc
import inspect
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

import cyclescope
from support.nodes import Holder

pytestmark = pytest.mark.gpu

MIB = 2**20


def allocate() -> torch.Tensor:
    return torch.zeros(4 * MIB, device="cuda:0")


ALLOCATES = f"{__file__}:{inspect.getsourcelines(allocate)[1] + 1} allocate"


def step() -> None:
    Holder(allocate())


def test_history_says_which_line_allocated_the_tensor() -> None:
    torch.zeros(1, device="cuda:0")
    reports: list[cyclescope.CycleReport] = []
    with cyclescope.observe_tensor_cycles(reports.append, record_history=True) as watch:
        assert torch._C._cuda_isHistoryEnabled()
        for _ in range(3):
            step()
            gc.collect()
            # The address is given out again at once, from another line.
            other = torch.ones(4 * MIB, device="cuda:0")
            del other
        assert watch.flush(60)
    assert not torch._C._cuda_isHistoryEnabled()
    first, *later = reports
    (buffer,) = first.leaks[0].buffers
    assert buffer.allocation[0] == ALLOCATES
    assert buffer.allocation[1].endswith(" step")
    assert f"allocated at {ALLOCATES}" in str(first)
    # Looked up once for each distinct leak.
    assert [r.leaks[0].buffers[0].allocation for r in later] == [[], []]


def test_without_record_history_nothing_is_recorded() -> None:
    reports: list[cyclescope.CycleReport] = []
    with cyclescope.observe_tensor_cycles(reports.append) as watch:
        step()
        gc.collect()
        assert not torch._C._cuda_isHistoryEnabled()
        assert watch.flush(60)
    assert reports[0].leaks[0].buffers[0].allocation == []


def test_a_recording_of_the_program_s_own_goes_on() -> None:
    torch.cuda.memory._record_memory_history("all", stacks="python", max_entries=1000)
    try:
        reports: list[cyclescope.CycleReport] = []
        with cyclescope.observe_tensor_cycles(reports.append, record_history=True) as watch:
            step()
            gc.collect()
            assert watch.flush(60)
        assert torch._C._cuda_isHistoryEnabled()
    finally:
        torch.cuda.memory._record_memory_history(None)
    assert reports[0].leaks[0].buffers[0].allocation[0] == ALLOCATES


def test_asking_for_history_does_not_initialise_cuda(program: Callable[..., Any]) -> None:
    source = """
    import gc, json, torch, cyclescope

    reports = []
    watch = cyclescope.observe_tensor_cycles(reports.append, record_history=True)
    before = torch.cuda.is_initialized()
    owner = []
    owner += [owner, torch.zeros(2**20, device="cuda:0")]
    del owner
    gc.collect()
    watch.stop()
    (buffer,) = reports[0].leaks[0].buffers
    print(json.dumps({"before": before, "allocation": buffer.allocation}))
    """
    said: Any = program(source)
    assert said["before"] is False
    assert said["allocation"] == ["<string>:8 <module>"], json.dumps(said)


def test_the_trace_says_that_the_autograd_graph_held_the_rest() -> None:
    weights = [torch.randn(1024, 1024, device="cuda:0", requires_grad=True) for _ in range(4)]

    def leak() -> None:
        x = torch.randn(4096, 1024, device="cuda:0")
        for weight in weights:
            x = torch.nn.functional.gelu(x @ weight)
        Holder(x.square().mean())

    leak()
    gc.collect()
    leak()
    before = torch.cuda.memory_allocated(0)
    report = cyclescope.find_tensor_cycles()
    freed = before - torch.cuda.memory_allocated(0)
    (found,) = report.leaks
    (buffer,) = found.buffers
    assert (found.bytes_held, found.bytes_freed) == (4, freed)
    assert freed >= 8 * 16 * MIB
    assert buffer.has_grad_fn
    words = " ".join(str(report).split())
    assert "the rest was held in C++, by its autograd graph (grad_fn) or otherwise" in words


def test_a_tensor_that_held_all_that_was_freed_needs_no_such_words() -> None:
    step()
    report = cyclescope.find_tensor_cycles()
    (found,) = report.leaks
    assert found.bytes_held == found.bytes_freed == 16 * MIB
    assert not found.buffers[0].has_grad_fn
    assert "although" not in str(report)
