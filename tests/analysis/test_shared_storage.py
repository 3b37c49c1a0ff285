"""Memory that two cycles hold, one of them by a view: both are told, and neither alone frees it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

import cyclescope
from support.nodes import Holder

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("collector_paused")


class Other(Holder):
    pass


@pytest.mark.parametrize(
    "view",
    [
        lambda tensor: tensor[0],
        lambda tensor: tensor.view(-1),
        lambda tensor: tensor[1:][0],
        lambda tensor: tensor.split(2)[1],
        lambda tensor: tensor.untyped_storage(),
    ],
    ids=["row", "flat", "view of a view", "split", "storage"],
)
def test_a_view_in_another_cycle_is_a_second_leak(view: Callable[[Any], Any]) -> None:
    def make(*cut: str) -> None:
        tensor = torch.ones(4, 1000)
        holders = [Holder(tensor), Other(view(tensor))]
        for holder in holders:
            if type(holder).__name__ in cut:
                del holder.me

    make()
    leaks = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert sorted(leak.cuts[0].owner.rpartition(".")[2] for leak in leaks) == ["Holder", "Other"]
    assert all(leak.bytes_held == 16_000 and leak.shared for leak in leaks)
    gc.collect()
    make("Holder", "Other")
    assert cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks == []


@pytest.mark.parametrize("linked", [False, True])
def test_each_cycle_that_shares_memory_counts(linked: bool) -> None:
    def make() -> None:
        tensor = torch.ones(1000)
        holders = [Holder(tensor) for _ in range(4)]
        if linked:
            for one, following in pairwise([*holders, holders[0]]):
                one.me = following

    make()
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert (leak.count, leak.bytes_held) == (1 if linked else 4, 4000)


def test_cycles_that_are_too_many_to_describe_are_counted() -> None:
    def make() -> None:
        tensor = torch.ones(1000)
        for _ in range(1200):
            holder = Holder(tensor)
            holder.me = holder

    make()
    report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
    (leak,) = report.leaks
    assert (leak.count, leak.bytes_held) == (1200, 4000)
    # On 3.10 they refer to themselves through dictionaries, which are beyond what is described.
    if sys.version_info >= (3, 11):
        assert "the same reference in at least 998 other objects like it" in str(report)


def test_a_view_that_lives_on_keeps_the_memory() -> None:
    tensor = torch.ones(4, 1000)
    view = tensor[0]
    Holder(tensor)
    Other(tensor.detach())
    del tensor
    assert cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks == []
    del view


def test_a_watch_counts_each_cycle_that_shares_memory() -> None:
    def make() -> None:
        tensor = torch.ones(1000)
        for _ in range(4):
            Holder(tensor)

    with cyclescope.warn_tensor_cycles(devices="any", min_bytes=0) as watch:
        for _ in range(3):
            make()
            gc.collect()
        (tally,) = watch.leaks
    assert tally.count == 12
