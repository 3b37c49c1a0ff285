"""What is replaced by something longer is told of every owner, whatever else has such a shape."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from support.marks import HAS_TORCH, needs_torch
from support.monitors import monitor_of_all

if HAS_TORCH:
    import torch

Step = Callable[[int], object]


class State(SimpleNamespace):
    """What a step changes."""


def owners(step: Step, steps: int = 60) -> list[tuple[str, int]]:
    """What is told to grow, with how many tensors."""
    monitor = monitor_of_all()
    with monitor:
        for number in range(steps):
            step(number)
            monitor.step()
    assert {growth.pattern for growth in monitor.found} <= {"tensor-grows"}, monitor.found
    return sorted((growth.owner.partition(" → ")[2], growth.tensors) for growth in monitor.found)


def longer(tensor: Any) -> Any:
    return torch.cat([tensor, torch.randn(1, *tensor.shape[1:])])


@needs_torch
@pytest.mark.usefixtures("collector_paused")
def test_every_owner_of_what_becomes_longer_is_told() -> None:
    first, second = State(keys=torch.zeros(0, 4096), values=torch.zeros(0, 4096)), State()
    second.log = torch.zeros(0, 4096)

    def step(number: int) -> None:
        first.keys, first.values = longer(first.keys), longer(first.values)
        second.log = longer(second.log)

    told = owners(step)
    assert [count for _, count in told] == [1, 1, 1]
    assert {owner.rpartition(" → ")[2] for owner, _ in told} == {".keys", ".values", ".log"}


@needs_torch
@pytest.mark.usefixtures("collector_paused")
def test_the_items_of_one_list_are_one_owners() -> None:
    state = State(past=[(torch.zeros(0, 256), torch.zeros(0, 256)) for _ in range(4)])

    def step(number: int) -> None:
        for at, (key, value) in enumerate(state.past):
            state.past[at] = longer(key), longer(value)

    ((owner, count),) = owners(step, 120)
    assert owner.endswith(".past (list) → [each] (tuple) → [each]")
    assert count == 8


@needs_torch
@pytest.mark.usefixtures("collector_paused")
def test_a_weight_or_a_window_that_is_longer_hides_nothing() -> None:
    weight = torch.zeros(300, 1024)
    state = State(bank=torch.zeros(0, 1024), window=torch.zeros(200, 1024), short=weight[:0])

    def step(number: int) -> None:
        state.bank = longer(state.bank)
        state.window = longer(state.window[1:])
        state.short = longer(state.short) if number % 7 else weight[:0].clone()

    told = owners(step, 150)
    assert len(weight) == 300
    assert [owner.rpartition(" → ")[2] for owner, _ in told] == [".bank"]
