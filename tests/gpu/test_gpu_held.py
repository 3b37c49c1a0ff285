"""What keeps a deleted model with its memory on a GPU: compiled code and CUDA graphs."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

import cyclescope

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

kept: dict[str, Any] = {}


def make() -> tuple[Any, Any]:
    net = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU()).cuda()
    return net, torch.ones(64, 1024, device="cuda")


def in_use() -> int:
    gc.collect()
    torch.cuda.synchronize()
    return int(torch.cuda.memory_allocated())


class Runner:
    """Runs a model by a CUDA graph, as inference engines do."""

    def __init__(self, net: Any, batch: Any) -> None:
        self.net, self.batch = net, batch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), torch.no_grad():
            net(batch)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph), torch.no_grad():
            self.output = net(batch)


def test_a_runner_of_a_cuda_graph_is_named_with_the_model_and_its_output() -> None:
    net, batch = make()
    kept["runner"] = Runner(net, batch)
    target = weakref.ref(net)
    del net, batch
    report = cyclescope.why_alive(target())
    (keeper,) = report.keepers
    assert "['runner']" in keeper.words
    assert keeper.words.endswith(".net")
    assert report.is_enough
    owners = str(cyclescope.heap().top("owner"))
    assert "`kept`" in owners
    before = in_use()
    del kept["runner"].net
    assert target() is None
    kept.clear()
    assert in_use() < before


def test_graphed_callables_are_named() -> None:
    net, batch = make()
    target = weakref.ref(net[0].weight)
    kept["graphed"] = torch.cuda.make_graphed_callables(net, (batch,))
    del net, batch
    report = cyclescope.why_alive(target())
    assert report.keepers, str(report)
    assert all("['graphed']" in keeper.words for keeper in report.keepers), str(report)
    del report
    kept.clear()
    gc.collect()
    assert target() is None


def test_what_compiled_code_keeps_in_cuda_graphs_goes_with_the_reset() -> None:
    net, batch = make()
    compiled = torch.compile(net, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(4):
            compiled(batch)
    target = weakref.ref(net)
    before = in_use()
    del net, compiled, batch
    gc.collect()
    if target() is not None:
        report = cyclescope.why_alive(target())
        assert report.keepers or report.notes, str(report)
        if report.is_enough:
            assert any(keeper.release for keeper in report.keepers), str(report)
    torch._dynamo.reset()
    gc.collect()
    assert target() is None
    assert in_use() < before
