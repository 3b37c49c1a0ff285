"""Growth of views: the program holds them, and C++ what they are views of."""

from __future__ import annotations

import asyncio
import json
import re
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import cyclescope

try:
    import torch
except ImportError:
    pytest.skip("views of PyTorch's tensors", allow_module_level=True)

STEPS = 30
VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "row": lambda block: block[0],
    "slice": lambda block: block[2:5],
    "flat": lambda block: block.view(-1),
    "transposed": lambda block: block.t(),
    "chunk": lambda block: block.chunk(4)[0],
    "view of a view": lambda block: block[3:4].squeeze(0),
    "detached": lambda block: block[0].detach(),
    "all": lambda block: block,
}


def watched(step: Callable[[int], None]) -> cyclescope.LeakMonitor:
    monitor = cyclescope.LeakMonitor(every=1, devices="any", min_bytes=0, max_share=float("inf"))
    with monitor:
        for number in range(STEPS):
            step(number)
            monitor.step()
    return monitor


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
@pytest.mark.parametrize("graph", [False, True], ids=["plain", "with a graph"])
def test_a_list_of_views_is_named(
    view: Callable[[torch.Tensor], torch.Tensor], graph: bool
) -> None:
    kept: list[Any] = []
    source = torch.ones(8, 500, requires_grad=graph)

    def step(number: int) -> None:
        kept.append(view(source * number))

    monitor = watched(step)
    (found,) = monitor.found
    has_graph = kept[0].requires_grad
    assert found.pattern == ("kept-with-graph" if has_graph else "container-grows")
    assert "`kept`" in found.owner
    assert found.bytes_per_step == pytest.approx(16_000, rel=0.01)
    explained = monitor.headline.partition(" % explained by `kept`")[0].rpartition(" ")[2]
    assert int(explained) >= 95, monitor.headline


@pytest.mark.parametrize("kind", ["list", "dict"])
def test_rows_of_arrays_over_tensors_are_views_and_count_once(kind: str) -> None:
    rows: list[Any] = []
    by_step: dict[int, Any] = {}

    def step(number: int) -> None:
        row = torch.full((8, 500), float(number)).numpy()[0]
        if kind == "list":
            rows.append(row)
        else:
            by_step[number] = row

    monitor = watched(step)
    (found,) = monitor.found
    assert "accumulates arrays that are views of larger arrays" in found.summary
    assert ".copy()" in found.advice
    assert found.bytes_per_step == pytest.approx(16_000, rel=0.01)
    steps = int(re.search(r"in (\d+) steps", monitor.headline)[1])  # type: ignore[index]
    assert json.loads(monitor.to_json())["grown"] == steps * 16_000


def test_views_of_one_tensor_do_not_grow() -> None:
    data = [torch.ones(8, 500) for _ in range(STEPS)]
    views: dict[int, torch.Tensor] = {}

    def step(number: int) -> None:
        views.clear()
        views[number] = data[number][0]

    assert watched(step).found == []


def test_what_another_container_holds_too_is_said() -> None:
    kept: list[Any] = []
    by_step: dict[int, Any] = {}

    def step(number: int) -> None:
        kept.append(torch.ones(8, 500))
        by_step[number] = kept[-1]

    (found,) = watched(step).found
    assert "holds at least some of them too" in found.summary
    assert "`kept`" in found.summary
    assert "`by_step`" in found.summary


def test_all_containers_that_hold_the_same_are_said() -> None:
    kept: list[Any] = []
    by_step: dict[int, Any] = {}
    events: list[tuple[str, Any]] = []

    def step(number: int) -> None:
        kept.append(torch.ones(8, 500))
        by_step[number] = kept[-1]
        events.append(("output", kept[-1]))

    found = next(it for it in watched(step).found if it.tensors)
    assert "hold at least some of them too" in found.summary
    assert all(f"`{name}`" in found.summary for name in ("kept", "by_step", "events"))


def resolver(future: asyncio.Future[None]) -> Callable[[], None]:
    return lambda: future.set_result(None)


RESOLVE: Callable[[], object] = int


def test_what_a_function_of_a_module_holds_too_is_said_by_its_name() -> None:
    global RESOLVE
    loop = asyncio.new_event_loop()
    kept: list[Any] = []
    RESOLVE = resolver(future := loop.create_future())
    add = future.add_done_callback
    del future

    def step(_: int) -> None:
        tensor = torch.ones(8, 500)
        kept.append(tensor)
        add(lambda _: tensor.numel())

    (found,) = [it for it in watched(step).found if it.tensors]
    RESOLVE = int
    loop.close()
    assert "__dict__" not in found.summary
    assert "at least some of them too" in found.summary


class Trainer:
    def __init__(self) -> None:
        self.net = torch.nn.Linear(500, 8)
        self.calls = 0
        self.seen: list[torch.Tensor] = []
        self.by_call: dict[int, torch.Tensor] = {}

    def count(self, *_: object) -> None:
        self.calls += 1

    def keep(self, _: object, __: object, output: torch.Tensor) -> None:
        self.seen.append(output)

    def keep_item(self, _: object, __: object, output: torch.Tensor) -> None:
        self.by_call[len(self.by_call)] = output


def test_a_hook_that_only_counts_fills_nothing() -> None:
    trainer = Trainer()
    trainer.net.register_forward_hook(trainer.count)

    def step(_: int) -> None:
        batch = torch.ones(8, 500)
        trainer.net(batch)
        trainer.seen.append(batch)

    (found,) = watched(step).found
    assert (found.pattern, trainer.calls) == ("container-grows", STEPS)


@pytest.mark.parametrize("hook", ["keep", "keep_item"])
def test_a_hook_that_adds_is_named(hook: str) -> None:
    trainer = Trainer()
    trainer.net.register_forward_hook(getattr(trainer, hook))

    def step(_: int) -> None:
        trainer.net(torch.ones(8, 500))

    (found,) = watched(step).found
    assert found.pattern == "activations-kept-by-hook"


def test_a_chain_is_named_by_its_head() -> None:
    chain: list[Any] = [None]

    def step(_: int) -> None:
        chain[0] = (torch.ones(8, 500), chain[0])

    (found,) = watched(step).found
    assert found.pattern == "container-grows"
    assert "`chain`" in found.owner


class Link:
    """A node of a chain."""

    def __init__(self, tensor: torch.Tensor, older: Link | None) -> None:
        self.tensor = tensor
        self.older = older


def enclosed(tensor: torch.Tensor, older: object) -> object:
    return lambda: (tensor, older)


@pytest.mark.long
@pytest.mark.parametrize("link", [Link, enclosed, lambda *both: both])
def test_a_chain_that_grows_at_its_head_is_its_owners(link: Callable[..., object]) -> None:
    class Chain:
        head: object = None

    chain = Chain()
    tensors: list[weakref.ref[torch.Tensor]] = []

    def step(_: int) -> None:
        tensor = torch.ones(8, 500)
        chain.head = link(tensor, chain.head)
        tensors.append(weakref.ref(tensor))

    monitor = cyclescope.LeakMonitor(every=1, devices="any", min_bytes=0, max_share=float("inf"))
    with monitor:
        for number in range(3 * STEPS):
            step(number)
            monitor.step()
    (found,) = monitor.found
    assert found.owner.endswith("(Chain) → .head"), found.owner
    # Most of what came since the last look too.
    (share,) = re.findall(r": (\d+) % explained by `Chain\.head`", monitor.headline)
    assert int(share) >= 80, monitor.headline
    chain.head = None
    assert all(tensor() is None for tensor in tensors)
