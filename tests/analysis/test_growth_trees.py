"""Trees and chains of objects that become larger have one owner, and the bytes that they hold."""

from __future__ import annotations

import random
from typing import Any

import pytest

from support.marks import HAS_TORCH, needs_torch
from support.monitors import monitor_of_all

if HAS_TORCH:
    import torch

pytestmark = [needs_torch, pytest.mark.usefixtures("collector_paused")]

KIB = 1 << 10


class Visit:
    """A node of a search tree."""

    def __init__(self, parent: Visit | None, *, items: type[dict[Any, Any] | list[Any]]) -> None:
        self.parent = parent
        self.children = items()
        self.prior = torch.ones(64, 64)

    def add(self, child: Visit) -> None:
        if isinstance(self.children, dict):
            self.children[f"move {len(self.children)}"] = child
        else:
            self.children.append(child)

    def any_child(self, chance: random.Random) -> Visit:
        children = self.children
        several: list[Visit] = list(children.values() if isinstance(children, dict) else children)
        return chance.choice(several)


def expand(node: Visit, chance: random.Random, *, has_parent: bool) -> None:
    while len(node.children) >= 4:
        node = node.any_child(chance)
    node.add(Visit(node if has_parent else None, items=type(node.children)))


@pytest.mark.parametrize("items", [dict, list])
@pytest.mark.parametrize("has_parent", [False, True])
def test_a_search_tree_has_one_owner(
    items: type[dict[Any, Any] | list[Any]], has_parent: bool
) -> None:
    chance = random.Random(has_parent)
    search = {"root": Visit(None, items=items)}
    monitor = monitor_of_all()
    with monitor:
        for _ in range(40):
            expand(search["root"], chance, has_parent=has_parent)
            monitor.step()
    (growth,) = monitor.found
    assert growth.owner.startswith("local `search`")
    assert growth.owner.endswith("['root']")
    assert "a tree of objects of `test_growth_trees.Visit`" in growth.summary
    assert growth.bytes_per_step == pytest.approx(16 * KIB, rel=0.05)
    assert "100 % explained" in monitor.headline


def test_a_chain_of_exceptions_is_told_once_by_who_keeps_the_last() -> None:
    class Job:
        last: Exception | None = None

        def run(self) -> None:
            batch = torch.ones(64, 64)
            try:
                raise RuntimeError(len(batch)) from self.last
            except RuntimeError as error:
                self.last = error

    job = Job()
    monitor = monitor_of_all()
    with monitor:
        for _ in range(60):
            job.run()
            monitor.step()
    (growth,) = monitor.found
    assert growth.pattern == "exceptions-kept"
    assert growth.owner.endswith(".last")
    assert growth.bytes_per_step == pytest.approx(16 * KIB, rel=0.05)


def test_a_tree_that_stays_is_not_the_owner_of_what_its_leaves_collect() -> None:
    class Block:
        def __init__(self, depth: int) -> None:
            self.parts = [Block(depth - 1) for _ in range(2)] if depth else []
            self.outputs: list[torch.Tensor] = []

        def forward(self) -> None:
            for part in self.parts:
                part.forward()
            self.outputs.append(torch.ones(64, 64))

    model = Block(2)
    monitor = monitor_of_all()
    with monitor:
        for _ in range(30):
            model.forward()
            monitor.step()
    assert monitor.found
    assert not any("a tree of objects" in growth.summary for growth in monitor.found)
    assert all(growth.owner.endswith(".outputs") for growth in monitor.found)


def test_a_chain_of_tensors_has_the_bytes_that_came() -> None:
    last: torch.Tensor | None = None
    monitor = monitor_of_all()
    with monitor:
        for _ in range(30):
            tensor = torch.ones(64, 64)
            tensor.before, tensor.input = last, torch.ones(64, 64)  # type: ignore[attr-defined]
            last = tensor
            monitor.step()
    assert last is not None
    assert monitor.found[0].bytes_per_step == pytest.approx(32 * KIB, rel=0.05)


def test_what_keeps_models_is_told_once() -> None:
    kept = []
    monitor = monitor_of_all()
    with monitor:
        for _ in range(30):
            model = torch.nn.Linear(64, 64)
            optimizer = torch.optim.Adam(model.parameters())
            model(torch.ones(4, 64)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            kept.append(optimizer)
            monitor.step()
    (growth,) = monitor.found
    assert growth.owner.startswith("local `kept`")
    assert growth.bytes_per_step == pytest.approx(3 * 4 * (64 * 64 + 64), rel=0.05)


class Link:
    def __init__(self, before: Link | None) -> None:
        self.before = before
        self.value = torch.ones(500)


def test_the_reference_that_links_a_chain_is_named() -> None:
    last = Link(None)
    monitor = monitor_of_all()
    with monitor:
        for _ in range(60):
            last = Link(last)
            monitor.step()
    (growth,) = monitor.found
    assert "a chain, linked by `.before` of" in growth.summary
    assert "Set that reference to None" in growth.advice
    assert "deque" not in growth.advice
