"""Hooks that pack what autograd saves go with the graph."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import cyclescope
from support.marks import needs_torch

pytestmark = needs_torch
torch = pytest.importorskip("torch")
kept: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def tidy() -> Iterator[None]:
    yield
    kept.clear()
    gc.collect()


def leaf() -> Any:
    return torch.ones(64, 64, requires_grad=True)


class Offload:
    """Hooks that are methods of one object."""

    def __init__(self) -> None:
        self.pool = torch.ones(64)

    def pack(self, tensor: Any) -> Any:
        """Keep it as it is."""
        return tensor.detach()

    def unpack(self, tensor: Any) -> Any:
        """Give it back."""
        return tensor


def checkpointed_input() -> tuple[Any, Any]:
    from torch.utils.checkpoint import checkpoint

    x = leaf()
    return x, checkpoint(lambda x: (x * x).sum(), x, use_reentrant=False)


def checkpointed_function() -> tuple[Any, Any]:
    from torch.utils.checkpoint import checkpoint

    scale = torch.ones(64)
    return scale, checkpoint(lambda x: (x * scale).sin().sum(), leaf(), use_reentrant=False)


def offloaded() -> tuple[Any, Any]:
    x = leaf()
    with torch.autograd.graph.save_on_cpu():
        return x, (x * x).sum()


def captured() -> tuple[Any, Any]:
    pool = torch.ones(64)

    def pack(tensor: Any) -> Any:
        return pool, tensor.detach()

    def unpack(packed: Any) -> Any:
        assert pool is not None
        return packed[1]

    x = leaf()
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        return pool, (x * x).sin().sum()


def methods() -> tuple[Any, Any]:
    offload = Offload()
    x = leaf()
    with torch.autograd.graph.saved_tensors_hooks(offload.pack, offload.unpack):
        return offload.pool, (x * x).sin().sum()


@pytest.mark.parametrize(
    "make", [checkpointed_input, checkpointed_function, offloaded, captured, methods]
)
def test_they_keep_nothing_once_the_graph_is_gone(make: Callable[[], tuple[Any, Any]]) -> None:
    made, kept["loss"] = make()
    seen = weakref.ref(made)
    del made
    gc.collect()
    report = cyclescope.why_alive(seen())
    assert report.is_enough, str(report)
    assert all("`kept`" in keeper.words for keeper in report.keepers), str(report)
    assert "C or C++" not in str(report)
    del kept["loss"]
    gc.collect()
    assert seen() is None
