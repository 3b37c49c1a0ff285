"""What grows has the bytes that it holds, with arrays in objects, and sparse tensors once."""

from __future__ import annotations

import re
from typing import Any

import numpy
import pytest

from support.marks import HAS_TORCH, needs_torch
from support.monitors import monitor_of_all

if HAS_TORCH:
    import torch


class Transition:
    def __init__(self, state: Any, reward: int) -> None:
        self.state, self.reward = state, reward


@pytest.mark.usefixtures("collector_paused")
def test_arrays_in_objects_count() -> None:
    memory: list[Transition] = []
    shared = numpy.ones(1_000_000)
    monitor = monitor_of_all(min_bytes=1 << 20)
    with monitor:
        for step in range(130):
            memory.append(Transition(numpy.ones(5_000, dtype="f4").reshape(50, 100), step))
            memory[-1].all = shared.reshape(-1)  # type: ignore[attr-defined]
            monitor.step()
    (growth,) = monitor.found
    assert growth.owner.startswith("local `memory`")
    assert growth.objects >= 100
    assert 20_000 <= growth.bytes / growth.objects < 21_000


@pytest.mark.usefixtures("collector_paused")
def test_few_large_objects_are_told() -> None:
    memory: list[Transition] = []
    monitor = monitor_of_all(min_bytes=1 << 20)
    with monitor:
        for step in range(60):
            memory.append(Transition(numpy.ones(500_000, dtype="f4"), step))
            monitor.step()
    (growth,) = monitor.found
    assert growth.owner.startswith("local `memory`")
    assert 20 <= growth.objects < 60


@needs_torch
@pytest.mark.usefixtures("collector_paused")
def test_the_parts_of_a_sparse_tensor_count_once() -> None:
    history = []
    monitor = monitor_of_all()
    with monitor:
        for _ in range(30):
            indices = torch.randint(0, 1000, (1, 100))
            history.append(torch.sparse_coo_tensor(indices, torch.ones(100, 64), (1000, 64)))
            del indices
            monitor.step()
    assert len(history) == 30
    assert re.search(r"100 % explained by `history`", monitor.headline), monitor.headline


@needs_torch
@pytest.mark.usefixtures("collector_paused")
def test_a_smaller_owner_beside_another_is_told_soon() -> None:
    larger, smaller = [], []
    monitor = monitor_of_all(min_bytes=1 << 20)
    with monitor:
        for _ in range(320):
            larger.append(torch.randn(32, 64))
            smaller.append(torch.randn(16, 64))
            monitor.step()
    assert len(larger) == len(smaller) == 320
    first, second = sorted(monitor.found, key=lambda growth: growth.step)
    assert first.owner.startswith("local `larger`")
    assert second.owner.startswith("local `smaller`")
    # It has 1 MiB at step 256.
    assert 256 <= second.step < 300


@needs_torch
@pytest.mark.usefixtures("collector_paused")
@pytest.mark.parametrize("keeps_saved", [True, False])
def test_leaves_and_their_gradients_behind_kept_graphs_count(keeps_saved: bool) -> None:
    weight = torch.randn(256, 512)
    losses = []
    monitor = monitor_of_all()
    with monitor:
        for _ in range(40):
            noise = torch.randn(256, 512, requires_grad=True)
            loss = (weight * noise).sum()
            loss.backward(retain_graph=keeps_saved)  # type: ignore[no-untyped-call]
            losses.append(loss)
            del noise, loss
            monitor.step()
    (growth,) = monitor.found
    assert growth.pattern == ("graph-retained" if keeps_saved else "kept-with-graph")
    a_leaf = 256 * 512 * 4
    assert 2 * a_leaf <= growth.bytes / growth.tensors < 2.1 * a_leaf


def passes_it_as_false(loss: torch.Tensor, given: torch.Tensor) -> None:
    loss.backward(given, retain_graph=False)  # type: ignore[no-untyped-call]
    loss.backward(retain_graph=None, create_graph=given)  # type: ignore[no-untyped-call]


@needs_torch
@pytest.mark.usefixtures("collector_paused")
def test_an_argument_that_is_false_retains_no_graph() -> None:
    weight = torch.ones(1000, requires_grad=True)
    losses = []
    with monitor_of_all() as monitor:
        for _ in range(40):
            # What `exp` saves is no leaf: a backward pass would have freed it.
            losses.append((weight * 2).exp().sum())
            if not losses:
                passes_it_as_false(losses[0], weight)
            monitor.step()
    (growth,) = monitor.found
    assert growth.pattern == "kept-with-graph"


@needs_torch
@pytest.mark.usefixtures("collector_paused")
@pytest.mark.parametrize("is_parameter", [True, False])
def test_gradients_that_python_has_seen_count_with_their_leaves(is_parameter: bool) -> None:
    kept = []
    monitor = monitor_of_all()
    with monitor:
        for _ in range(40):
            leaf = torch.zeros(256, 512, requires_grad=True)
            if is_parameter:
                leaf = torch.nn.Parameter(leaf)
            leaf.sum().backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_([leaf], 1.0)
            kept.append(leaf)
            del leaf
            monitor.step()
    (growth,) = monitor.found
    assert growth.pattern == ("model-copies" if is_parameter else "container-grows")
    a_leaf = 256 * 512 * 4
    assert 2 * a_leaf <= growth.bytes / growth.tensors < 2.1 * a_leaf
    assert "100 % explained by `kept`" in monitor.headline
