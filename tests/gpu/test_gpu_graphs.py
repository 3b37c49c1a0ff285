"""Collections in the middle of CUDA graphs: nothing that the hook does may break the capture."""

from __future__ import annotations

import copy
import gc
from typing import Any

import pytest
import torch

import common
import cyclescope
from support.nodes import Holder

pytestmark = pytest.mark.gpu

MIB = 2**20


@pytest.mark.parametrize("explicit", [False, True], ids=["watch", "find"])
@pytest.mark.parametrize("inside", [False, True], ids=["older tensor", "captured tensor"])
def test_a_collection_during_capture(explicit: bool, inside: bool) -> None:
    static = torch.zeros(MIB, device="cuda:0")
    weight = torch.full((MIB,), 3.0, device="cuda:0")
    stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        static * weight + 1
    torch.cuda.current_stream().wait_stream(stream)
    alive = [] if inside else [Holder(torch.zeros(16 * MIB, device="cuda:0"))]

    reports: list[cyclescope.CycleReport] = []
    graph = torch.cuda.CUDAGraph()
    with cyclescope.observe_tensor_cycles(reports.append) as watch:
        with torch.cuda.graph(graph):
            product = static * weight
            if inside:
                Holder(torch.zeros(16 * MIB, device="cuda:0"))
            alive.clear()
            if explicit:
                cyclescope.find_tensor_cycles()
            else:
                gc.collect()
            assert torch.cuda.is_current_stream_capturing()
            result = product + 1
        assert watch.flush(60)

    (report,) = reports
    (leak,) = report.leaks
    (buffer,) = leak.buffers
    assert (buffer.device, buffer.bytes, buffer.confirmed) == ("cuda:0", 64 * MIB, True)
    for value in (2.0, 5.0):
        static.fill_(value)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(result, torch.full_like(result, value * 3 + 1))


def test_collections_during_compiled_steps_with_cuda_graphs() -> None:
    torch.manual_seed(0)
    plain: Any = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)
    ).to("cuda:0")
    model = copy.deepcopy(plain)
    compiled: Any = torch.compile(model, mode="reduce-overhead")
    begin_step: Any = torch.compiler.cudagraph_mark_step_begin
    batches = [torch.randn(32, 64, device="cuda:0") for _ in range(8)]

    def train(step_model: Any, *, leaking: bool) -> None:
        optimizer = torch.optim.SGD(step_model.parameters(), lr=0.01)
        for batch in batches:
            begin_step()
            loss = step_model(batch).square().mean()
            if leaking:
                common.load("awaitable_leak").leak("cuda:0", 4)
                gc.collect()
            loss.backward()
            if leaking:
                common.load("two_nodes").leak("cuda:0", 4)
                gc.collect(0)
            optimizer.step()
            optimizer.zero_grad()

    reports: list[cyclescope.CycleReport] = []
    with cyclescope.observe_tensor_cycles(reports.append) as watch:
        train(compiled, leaking=True)
        assert watch.flush(60)
    train(plain, leaking=False)
    for one, other in zip(plain.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    counts: dict[str, int] = {}
    for report in reports:
        for leak in report.leaks:
            for name in ("AwaitableTensor", "Node"):
                if name in leak.summary:
                    assert leak.bytes_held == {"AwaitableTensor": 4, "Node": 8}[name] * MIB
                    counts[name] = counts.get(name, 0) + leak.count
    assert counts == {"AwaitableTensor": len(batches), "Node": len(batches)}
