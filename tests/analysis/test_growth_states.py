"""Only a graph that becomes longer from step to step is told as a state that nobody detaches."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import cyclescope
from support.monitors import monitor_of_all

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("collector_paused")

STEPS = 50


def watched(step: Callable[[int], object]) -> cyclescope.LeakMonitor:
    monitor = monitor_of_all()
    with monitor:
        for number in range(STEPS):
            step(number)
            monitor.step()
    return monitor


def test_losses_that_exceptions_keep_carry_nothing_on() -> None:
    failures: list[ValueError] = []

    def train(inputs: Any) -> None:
        loss = inputs.exp().mean()
        raise ValueError(loss.shape)

    def step(_: int) -> None:
        try:
            train(torch.ones(64, 64, requires_grad=True))
        except ValueError as error:
            failures.append(error)

    assert {it.pattern for it in watched(step).found} == {"exceptions-kept"}
    failures.clear()


def test_what_is_computed_from_an_old_graph_beside_them_carries_nothing_on() -> None:
    failures: list[ValueError] = []
    weight = torch.ones(64, requires_grad=True)
    table = (weight * 2).exp()

    def train(inputs: Any) -> None:
        loss = (inputs * table).mean()
        raise ValueError(loss.shape)

    def step(_: int) -> None:
        try:
            train(torch.ones(64, 64))
        except ValueError as error:
            failures.append(error)

    assert "state-not-detached" not in {it.pattern for it in watched(step).found}
    failures.clear()


def test_a_state_is_told_with_all_that_its_graph_keeps() -> None:
    weight = torch.ones(64, 64, requires_grad=True)
    state = {"hidden": torch.zeros(64, 64)}

    def step(_: int) -> None:
        state["hidden"] = torch.tanh(state["hidden"] @ weight)

    (growth,) = watched(step).found
    assert growth.pattern == "state-not-detached"
    # Each step adds what `tanh` saves; the product saves that too.
    assert growth.bytes >= (growth.step - 1) * 64 * 64 * 4


def add_up(step: Callable[[Any], object], clears: bool = False) -> cyclescope.LeakMonitor:
    """Of gradients that have graphs of their own."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Linear(32, 8))

    def train(_: int) -> None:
        if clears:
            model.zero_grad()
        loss = model(torch.ones(4, 64)).square().sum()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the very reference that is tested
            loss.backward(create_graph=True)
        step(model)

    try:
        return watched(train)
    finally:
        model.zero_grad()


KEPT: dict[str, Any] = {}
"""What is made anew in each step, and has the graph of a gradient as the gradient itself has."""


@pytest.mark.parametrize(
    "step",
    [
        lambda model: None,
        lambda model: KEPT.update(norm=model[0].weight.grad.norm()),
        lambda model: KEPT.update(all=[it.grad for it in model.parameters()]),
    ],
    ids=["nothing", "norm", "list"],
)
def test_gradients_with_graphs_are_the_state_that_is_carried_on(
    step: Callable[[Any], object],
) -> None:
    (growth,) = [it for it in add_up(step).found if it.pattern == "state-not-detached"]
    KEPT.clear()
    assert growth.owner.endswith((".weight → .grad", ".bias → .grad", "Parameter → .grad"))
    assert ".grad_fn" not in growth.owner
    assert "zero_grad()" in growth.advice
    assert "detach()" not in growth.advice


def test_gradients_that_are_cleared_in_each_step_carry_nothing_on() -> None:
    monitor = add_up(lambda model: KEPT.update(norm=model[0].weight.grad.norm()), clears=True)
    KEPT.clear()
    assert monitor.found == []


def test_an_input_that_only_a_graph_keeps_is_of_what_the_graph_keeps() -> None:
    losses: list[Any] = []
    weight = torch.ones(4096, requires_grad=True)

    def own_input(_: int) -> None:
        losses.append(torch.ones(4096, requires_grad=True).sum() * 2)

    def parameter(_: int) -> None:
        losses.append((weight * 2).sum())

    (found,) = watched(own_input).found
    assert "3 autograd nodes each, which keep 16.0 KiB" in found.summary
    losses.clear()
    (found,) = watched(parameter).found
    assert "16.0 KiB" not in found.summary
