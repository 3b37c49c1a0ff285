"""An object that many references keep: all are listed, and what is said to let go does so."""

from __future__ import annotations

import collections
import gc
import itertools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import cyclescope
from support.marks import needs_torch


class Thing:
    """Can be referred to weakly, and called as a hook."""

    def hook(self, *_: object) -> None:
        """Do nothing."""


kept: dict[str, Any] = {}
SHOWN = 16


@pytest.fixture(autouse=True)
def tidy() -> Iterator[None]:
    yield
    kept.clear()
    gc.collect()


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def ask(seen: weakref.ref[Thing]) -> cyclescope.Retention:
    return cyclescope.why_alive(seen())


def with_holders(count: int) -> weakref.ref[Thing]:
    thing = Thing()
    for number in range(count):
        kept[f"holder{number}"] = holder = Thing()
        holder.thing = thing  # type: ignore[attr-defined]
    return weakref.ref(thing)


def lines(report: cyclescope.Retention) -> list[str]:
    return report.to_text().split("PATH")[0].splitlines()


@pytest.mark.parametrize("count", [2, 16, 17, 40, 1024])
def test_all_references_are_known_and_the_first_are_shown(count: int) -> None:
    seen = with_holders(count)
    report = ask(seen)
    assert (len(report.keepers), report.keepers_omitted) == (count, 0)
    assert report.is_enough
    text = lines(report)
    assert text[0] == f"Thing: kept alive by {count:,} references.".replace(
        "Thing", f"{__name__}.Thing"
    )
    assert text[2] == f"Remove all of these {count} to free it:"
    assert sum(line.endswith(".thing") for line in text) == min(count, SHOWN)
    assert (f"  and {count - SHOWN:,} more" in text) == (count > SHOWN)
    assert ("more" in report.to_html().split("path, step")[0]) or count <= SHOWN
    for number in range(count):
        assert seen() is not None
        del kept[f"holder{number}"].thing
    assert seen() is None


def test_c_iterators_are_listed() -> None:
    thing = Thing()
    seen = weakref.ref(thing)
    kept["other"] = Thing()
    for number in range(20):
        kept[f"iterator{number}"] = itertools.repeat(thing)
    del thing
    report = ask(seen)
    assert len(report.keepers) == 20
    assert report.is_enough
    for number in range(20):
        assert seen() is not None
        del kept[f"iterator{number}"]
    assert seen() is None


def test_what_only_an_iterator_goes_through_is_let_go_with_it() -> None:
    thing = Thing()
    chain = itertools.chain([0], [thing])
    assert next(chain) == 0
    seen = weakref.ref(thing)
    del thing
    report = cyclescope.why_alive(seen())
    (keeper,) = report.keepers
    assert keeper.words.startswith("local `chain`")
    assert "[0]" not in keeper.words, keeper.words
    del chain
    assert seen() is None


def test_a_container_that_has_an_object_many_times_is_one() -> None:
    thing = Thing()
    seen = weakref.ref(thing)
    kept["list"] = [thing] * 100
    kept["other"] = [thing]
    del thing
    report = ask(seen)
    assert report.is_enough
    assert len(report.keepers) == 2, str(report)
    del kept["list"]
    assert seen() is not None
    kept["other"].clear()
    assert seen() is None


@pytest.mark.parametrize("count", [1500, 6000])
def test_of_very_many_the_number_is_known(count: int) -> None:
    thing = Thing()
    seen = weakref.ref(thing)
    kept["items"] = [[thing] for _ in range(count)]
    del thing
    report = ask(seen)
    assert report.is_enough
    assert len(report.keepers) + report.keepers_omitted == count
    assert f"kept alive by {count:,} references." in str(report)
    assert f"  and {count - SHOWN:,} more" in lines(report)
    for item in kept["items"]:
        assert seen() is not None
        item.clear()
    assert seen() is None


@needs_torch
@pytest.mark.parametrize("layers", [3, 18, 30])
@pytest.mark.parametrize("times", [1, 6])
def test_hooks_are_let_go_by_their_handles(layers: int, times: int) -> None:
    import torch

    thing = Thing()
    seen = weakref.ref(thing)
    kept["model"] = model = torch.nn.Sequential(*[torch.nn.Linear(2, 2) for _ in range(layers)])
    handles = [layer.register_forward_hook(thing.hook) for layer in model for _ in range(times)]
    del thing, model
    report = ask(seen)
    assert len(report.keepers) == layers * times, str(report)
    assert all("_forward_hooks" in it.words and "`remove()`" in it.release for it in report.keepers)
    for handle in handles:
        assert seen() is not None
        handle.remove()
    assert seen() is None


@needs_torch
def test_hooks_of_autograd_functions_are_let_go_by_their_handles() -> None:
    import torch

    thing = Thing()
    seen = weakref.ref(thing)
    loss: Any = (torch.ones(2, requires_grad=True) * 2).exp().sum()
    kept["loss"] = loss
    handle = loss.grad_fn.next_functions[0][0].register_hook(thing.hook)
    del thing, loss
    (keeper,) = ask(seen).keepers
    assert "`remove()`" in keeper.release, keeper.words
    handle.remove()
    assert seen() is None


def graph_module() -> tuple[Thing, Callable[[], object]]:
    import torch

    thing = Thing()
    traced = torch.fx.symbolic_trace(torch.nn.Linear(2, 2))
    traced.meta["thing"] = thing
    kept["traced"] = [traced]
    return thing, kept["traced"].clear


def in_itself() -> tuple[Thing, Callable[[], object]]:
    import torch

    thing = Thing()
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)
    optimizer.thing = thing  # type: ignore[attr-defined]
    optimizer.again = optimizer  # type: ignore[attr-defined]
    kept["traced"] = [optimizer]
    return thing, kept["traced"].clear


def plain() -> tuple[Thing, Callable[[], object]]:
    import torch

    thing = Thing()
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)
    optimizer.thing = thing  # type: ignore[attr-defined]
    kept["traced"] = [optimizer]
    return thing, kept["traced"].clear


@needs_torch
@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("program", [graph_module, in_itself, plain])
def test_what_is_said_to_let_go_says_if_it_takes_a_collection(
    program: Callable[[], tuple[Thing, Callable[[], object]]],
) -> None:
    thing, let_go = program()
    seen = weakref.ref(thing)
    del thing
    report = ask(seen)
    (keeper,) = report.keepers
    assert report.is_enough
    assert keeper.release.startswith("delete `"), str(report)
    let_go()
    at_once = not report.by_collection and "the garbage collector" not in keeper.release
    assert (seen() is None) == at_once
    gc.collect()
    assert seen() is None


def test_a_key_of_an_ordered_dictionary_is_told_as_that_of_a_dictionary() -> None:
    for kind in dict, collections.OrderedDict, collections.defaultdict:
        thing = Thing()
        seen = weakref.ref(thing)
        kept["names"] = kind()
        kept["names"][thing] = 1
        del thing
        (keeper,) = ask(seen).keepers
        assert keeper.words.endswith("→ a key"), keeper.words
        kept["names"].clear()
        assert seen() is None


def test_a_key_that_is_a_value_too_is_told_twice() -> None:
    thing = Thing()
    seen = weakref.ref(thing)
    kept["names"] = collections.OrderedDict({thing: 1, "value": thing})
    del thing
    assert len(ask(seen).keepers) == 2
    del kept["names"]["value"]
    assert len(ask(seen).keepers) == 1
    kept["names"].popitem()
    assert seen() is None


def test_indices_come_in_the_order_of_numbers() -> None:
    class Buffer: ...

    kept = [[Buffer()] for _ in range(1)]
    kept += [[kept[0][0]] for _ in range(11)]
    words = [keeper.words for keeper in cyclescope.why_alive(kept[0][0]).keepers]
    at = [int(each.split("→ [")[1].split("]")[0]) for each in words if "`kept`" in each]
    assert at == list(range(12))
