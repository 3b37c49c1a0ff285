"""Growth in many containers that are alike: one owner is told, and told on."""

from __future__ import annotations

import collections
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any, ClassVar

import numpy
import pytest

import cyclescope
from support.marks import HAS_TORCH, needs_torch
from support.monitors import monitor_of_all

if HAS_TORCH:
    import torch


def watched(steps: int, step: Callable[[int], None], every: int = 1) -> cyclescope.LeakMonitor:
    monitor = monitor_of_all(every=every)
    with monitor:
        for number in range(steps):
            step(number)
            monitor.step()
    return monitor


class Shard:
    def __init__(self) -> None:
        self.items: list[Any] = []


@needs_torch
@pytest.mark.parametrize("count", [4, 8, 24])
@pytest.mark.parametrize("by_key", [False, True], ids=["list", "dict"])
@pytest.mark.parametrize("often", [False, True], ids=["some of each", "one of some"])
def test_lists_that_are_alike_are_one_owner(count: int, by_key: bool, often: bool) -> None:
    shards: Any = {f"s{number}": Shard() for number in range(count)}
    each = list(shards.values())
    shards = shards if by_key else each

    def step(number: int) -> None:
        each[number % count].items.append(torch.ones(500))

    # In intervals of one sample, none of many lists grows in most.
    monitor = watched((10 if often else 20) * count + 20, step, every=1 if often else count // 2)
    (found,) = monitor.found
    assert "`shards`" in found.owner
    assert "has stopped growing" not in monitor.to_text()
    assert "100 % explained by" in monitor.headline, monitor.headline


@needs_torch
def test_what_each_of_them_has_is_named() -> None:
    shards = [Shard() for _ in range(6)]

    def step(_: int) -> None:
        for shard in shards:
            shard.items.append(torch.ones(500))

    (found,) = watched(30, step).found
    assert "`shards`" in found.owner
    assert found.owner.endswith("[each] (Shard) → .items")
    assert "in 6 such containers" in found.summary


class Epoch:
    def __init__(self) -> None:
        self.train: list[Any] = []
        self.val: list[Any] = []


@needs_torch
@pytest.mark.parametrize("kind", [Epoch, lambda: {"train": [], "val": []}], ids=["object", "dict"])
def test_what_one_epoch_fills_does_not_grow_but_the_list_of_epochs(kind: Any) -> None:
    epochs: list[Any] = []

    def step(number: int) -> None:
        if number % 30 == 0:
            epochs.append(kind())
        epoch = epochs[-1] if isinstance(epochs[-1], dict) else vars(epochs[-1])
        epoch["train"].append(torch.ones(4000))
        epoch["val"].append(torch.ones(1000))

    monitor = watched(600, step, every=10)
    (found,) = monitor.found
    assert re.search(r"`epochs` in `\w+`[^→]*$", found.owner), found.owner
    assert "100 % explained by `epochs`" in monitor.headline, monitor.headline


@needs_torch
def test_lists_of_sessions_by_number_are_one_owner() -> None:
    sessions: list[dict[str, Any]] = [{f"s{user}": Shard()} for user in range(8)]

    def step(number: int) -> None:
        for session in sessions[number % 8].values():
            session.items.append(torch.ones(500))

    (found,) = watched(120, step).found
    assert "`sessions`" in found.owner


@needs_torch
def test_those_that_differ_in_name_are_not_alike() -> None:
    shards = [Epoch() for _ in range(6)]

    def step(_: int) -> None:
        for shard in shards:
            shard.train.append(torch.ones(500))
            shard.val.append(torch.ones(250))

    found = {it.owner.split(" → ")[-1]: it for it in watched(40, step).found}
    assert set(found) == {".train", ".val"}
    assert all("in 6 such containers" in it.summary for it in found.values())
    assert found[".train"].bytes == 2 * found[".val"].bytes


@needs_torch
@pytest.mark.parametrize("count", [2, 3])
def test_a_few_are_named_one_by_one(count: int) -> None:
    names = ["loss", "accuracy", "rate"][:count]
    metrics: dict[str, list[Any]] = {name: [] for name in names}

    def step(_: int) -> None:
        for values in metrics.values():
            values.append(torch.ones(500))

    owners = {found.owner for found in watched(30, step).found}
    assert len(owners) == count
    assert all(any(f"['{name}']" in owner for owner in owners) for name in names)


@needs_torch
def test_one_that_grows_beside_others_that_do_not_is_named_itself() -> None:
    shards = [Shard() for _ in range(6)]

    def step(number: int) -> None:
        shards[3].items.append(torch.ones(500))
        for shard in shards[4:]:
            shard.items[:] = [torch.ones(500), torch.ones(500)]

    (found,) = watched(30, step).found
    assert "[3] (Shard)" in found.owner


@needs_torch
def test_a_full_window_is_said_to_have_stopped_and_not_to_have_released() -> None:
    window: list[Any] = []

    def step(_: int) -> None:
        window.append(torch.ones(5000))
        del window[:-25]

    monitor = watched(80, step)
    assert monitor.found == []
    assert "has released" not in monitor.to_text()
    assert "has stopped growing" in monitor.to_text()
    assert "explained by `window` (no longer growing)" in monitor.headline


@needs_torch
def test_what_others_release_does_not_stop_what_grows() -> None:
    kept: list[Any] = []
    old = [torch.ones(5000) for _ in range(400)]

    def step(_: int) -> None:
        kept.append(torch.ones(5000))
        if len(kept) > 20:
            del old[:6]

    monitor = watched(60, step)
    (found,) = monitor.found
    assert "`kept`" in found.owner
    assert "has stopped growing" not in monitor.to_text()
    assert len(kept) == 60


@needs_torch
def test_what_stops_beside_what_comes_and_goes_is_said_to_have_stopped() -> None:
    kept: list[Any] = []
    lately: collections.deque[Any] = collections.deque(maxlen=40)

    def step(number: int) -> None:
        if number < 20:
            kept.append(torch.ones(5000))
        lately.append(torch.ones(5000))

    monitor = watched(90, step)
    assert monitor.found == []
    assert "`kept`" in monitor.to_text()
    assert "has stopped growing" in monitor.to_text()


PROGRAM = """\
import numpy
import cyclescope

kept = {{}}
monitor = cyclescope.LeakMonitor(every=1, devices="any", max_share=float("inf"))
with monitor:
    for number in range(60):
        {step}
        monitor.step()
print(len(monitor.found), monitor.headline)
print(monitor.to_text())
"""


def said_of(step: str) -> str:
    """What is said of a step, in a process of its own, which has no freed memory to use again."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(step=step)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize(
    "step",
    [
        "kept[number] = numpy.ones(200_000)",
        "kept.setdefault('all', bytearray()).extend(bytes(1_000_000))",
    ],
    ids=["a dictionary of arrays by number", "a longer buffer"],
)
@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_memory_that_no_sample_shows_is_not_passed_over(step: str) -> None:
    said = said_of(step)
    # From 3.14 on, the collector knows all dictionaries.
    if "ones" in step and sys.version_info >= (3, 14):
        assert said.startswith("1 ")
        return
    assert said.startswith("0 ")
    assert re.search(r"; resident memory \+[\d.]+ MiB, not explained\n", said), said
    assert "No growth was found" not in said
    assert "cyclescope.heap()" in said


def test_memory_that_came_at_once_is_not_said_to_grow() -> None:
    said = said_of("number == 30 and kept.update(x=b'1' * 50_000_000)")
    assert "resident memory +" not in said.splitlines()[0]
    assert "No growth was found" in said


class Registered:
    registry: ClassVar[list[Any]] = []

    def __init_subclass__(cls) -> None:
        Registered.registry.append(cls)


@needs_torch
def test_classes_in_a_registry_have_an_owner() -> None:
    def step(_: int) -> None:
        type("Task", (Registered,), {"table": torch.zeros(5000)})

    try:
        (found,) = [it for it in watched(30, step).found if it.tensors]
        assert "Registered" in found.owner
        assert found.owner.endswith(".registry")
    finally:
        Registered.registry.clear()


@needs_torch
def test_growth_of_which_nothing_is_known_is_not_said_to_be_none() -> None:
    kept: list[Any] = []

    def step(number: int) -> None:
        if number in (5, 21):
            kept.extend(torch.ones(100_000) for _ in range(8))

    monitor = watched(30, step)
    assert monitor.found == []
    assert "not explained" in monitor.headline
    assert "No growth was found" not in monitor.to_text()
    assert "No growth was found" not in monitor.to_html()
    assert "Objects grow" not in monitor.to_html()


@needs_torch
def test_the_calls_of_a_mock_are_reset() -> None:
    from unittest import mock

    logger = mock.Mock()
    monitor = watched(30, lambda number: logger.log({"image": torch.ones(500)}, step=number))
    (found,) = monitor.found
    assert "call its `reset_mock()`" in found.advice


@needs_torch
def test_a_variable_that_refers_to_one_of_them_makes_no_difference() -> None:
    shards = {number: Shard() for number in range(8)}
    current = shards[0]

    def step(number: int) -> None:
        nonlocal current
        for shard in shards.values():
            current = shard
            shard.items.append(torch.ones(500))

    (found,) = watched(60, step).found
    assert found.owner.endswith("[each] (Shard) → .items")
    assert "in 8 such containers" in found.summary


@needs_torch
@pytest.mark.parametrize("has_variable", [False, True])
def test_what_an_epoch_fills_is_told_as_its_container(has_variable: bool) -> None:
    results: list[Shard] = []
    current = Shard()

    def step(number: int) -> None:
        if number % 40 == 0:
            results.append(Shard())
        results[-1].items.append(torch.ones(500))

    def with_variable(number: int) -> None:
        nonlocal current
        step(number)
        current = results[-1]

    monitor = watched(480, with_variable if has_variable else step, every=2)
    (found,) = monitor.found
    assert found.owner.startswith("local `results`")
    assert " → " not in found.owner


@needs_torch
def test_more_and_more_attributes_are_one_owner() -> None:
    shard = Shard()

    def step(number: int) -> None:
        setattr(shard, f"loss_{number}", torch.ones(500))

    monitor = watched(120, step, every=2)
    (found,) = monitor.found
    assert "gets more and more attributes" in found.summary
    assert "has stopped growing" not in monitor.to_text()


@needs_torch
def test_a_few_lists_in_a_list_are_named_one_by_one() -> None:
    parts: list[list[Any]] = [[], [], []]

    def step(_: int) -> None:
        for part in parts:
            part.append(torch.ones(500))

    found = watched(60, step).found
    assert sorted(it.owner[-3:] for it in found) == ["[0]", "[1]", "[2]"]


def test_objects_of_many_classes_in_one_cache_are_one_owner() -> None:
    classes = [type(f"Node{number}", (), {}) for number in range(24)]
    cache: dict[type, list[Any]] = {}

    def node(of: type) -> Any:
        made = of()
        made.data = [0] * 100
        return made

    def step(_: int) -> None:
        for of in classes:
            cache.setdefault(of, []).extend(node(of) for _ in range(40))

    found = [it.owner for it in watched(150, step).found]
    assert sum(owner.endswith("[each]") for owner in found) == 1, found
    assert len(found) <= 2, found


PARTS = [type(f"Part{number}", (), {}) for number in range(12)]


class Block:
    def __init__(self) -> None:
        self.values = numpy.ones(20_000)


class Table:
    """As a table of pandas: of many parts, of which one has the memory."""

    def __init__(self) -> None:
        self.parts = [part() for part in PARTS for _ in range(3)]
        self.blocks = (Block(),)


def test_an_object_of_many_parts_is_told_by_the_one_that_keeps_most() -> None:
    tables = []
    with cyclescope.LeakMonitor(every=1, max_share=float("inf"), min_bytes=2**20) as monitor:
        for _ in range(150):
            tables.append(Table())
            monitor.step()
    assert [it.owner for it in monitor.found if "`tables`" in it.owner], monitor.headline
