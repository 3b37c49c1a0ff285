"""Why is a tensor alive? What PyTorch refers to in C++: graphs, gradients, hooks, and loops."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cyclescope
from support.marks import needs_torch

history: list[Any] = []
cache: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def tidy() -> Iterator[None]:
    gc.collect()
    yield
    history.clear()
    cache.clear()
    gc.collect()


class Owner:
    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def leaf(torch: Any) -> Any:
    return torch.ones(64, requires_grad=True)


def attribute_and_view(torch: Any) -> Any:
    x = torch.ones(64)
    x.o = Owner()
    x.o.y = x[:4]
    return x


def square_on_owner(torch: Any) -> Any:
    w = leaf(torch)
    w.o = Owner()
    w.o.y = w * w
    return w


def gradient_knows_leaf(torch: Any) -> Any:
    w = leaf(torch)
    (w * 2).sum().backward()
    w.grad.o = w
    return w


def hook_captures_its_tensor(torch: Any) -> Any:
    h = leaf(torch) * 2
    h.register_hook(lambda gradient: gradient * h.sum())
    return h


def accumulate_hook_captures_parameter(torch: Any) -> Any:
    w = leaf(torch)
    w.register_post_accumulate_grad_hook(lambda _: w.zero_())
    return w


def identity_saved_tensor_hooks(torch: Any) -> Any:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        return leaf(torch).exp()


LOOPS: list[Callable[[Any], Any]] = [
    attribute_and_view,
    square_on_owner,
    gradient_knows_leaf,
    hook_captures_its_tensor,
    accumulate_hook_captures_parameter,
    identity_saved_tensor_hooks,
]


def survives(torch: Any, make: Callable[[Any], Any]) -> bool:
    """Whether what `make` makes outlives its last reference and a collection."""
    watch = weakref.ref(make(torch))
    gc.collect()
    return watch() is not None


@needs_torch
@pytest.mark.parametrize("make", LOOPS)
def test_a_loop_that_no_collection_frees_is_named(make: Callable[[Any], Any], torch: Any) -> None:
    assert survives(torch, make), "PyTorch frees it, so this is no example"
    thing = make(torch)
    report = cyclescope.why_alive(thing)
    assert len(report.loops) == 1, str(report)
    assert report.loops[0].root == "itself"
    assert "no collection can free this" in str(report)


def plain_attribute(torch: Any) -> Any:
    x = torch.ones(64)
    x.o = Owner()
    x.o.x = x
    return x


def leaf_with_gradient(torch: Any) -> Any:
    w = leaf(torch)
    (w * 2).sum().backward()
    return w


def hook_captures_another(torch: Any) -> Any:
    other = torch.ones(3)
    h = leaf(torch) * 2
    h.register_hook(lambda gradient: gradient * other.sum())
    return h


def view_of_a_view(torch: Any) -> Any:
    return torch.ones(64)[:8][:2]


def saved_for_backward(torch: Any) -> Any:
    return leaf(torch).exp()


@needs_torch
@pytest.mark.parametrize(
    "make",
    [
        plain_attribute,
        leaf_with_gradient,
        hook_captures_another,
        view_of_a_view,
        saved_for_backward,
    ],
)
def test_what_is_freed_is_no_such_loop(make: Callable[[Any], Any], torch: Any) -> None:
    assert not survives(torch, make), "PyTorch does not free it, so this is no example"
    report = cyclescope.why_alive(make(torch))
    assert report.loops == [], str(report)


@needs_torch
def test_a_live_view_makes_a_loop_of_an_attribute(torch: Any) -> None:
    x = plain_attribute(torch)
    view = x[:4]
    report = cyclescope.why_alive(x)
    assert any(path.root == "local" for path in report.paths)
    assert view.shape == (4,)


@needs_torch
def test_the_autograd_graph_is_part_of_the_way(torch: Any) -> None:
    w = leaf(torch)
    history.append((w * w).sum())
    found = [path.words for path in cyclescope.why_alive(w).paths]
    assert any("`history`" in it and ".grad_fn" in it for it in found), found


@needs_torch
@pytest.mark.parametrize("place", ["variable", "attribute", "item", "behind another"])
def test_a_stored_function_keeps_what_it_saved(torch: Any, place: str) -> None:
    x = leaf(torch)
    function = ((x * x).exp() if place == "behind another" else x * x).grad_fn
    seen = weakref.ref(x)
    if place == "attribute":
        cache["stats"] = Owner(last=function)
    else:
        cache["stats"] = [function] if place == "item" else function
    del x, function
    report = cyclescope.why_alive(seen())
    [keeper] = report.keepers
    assert report.is_enough, report
    assert "`cache`" in keeper.words
    assert "stats" in keeper.words
    cache.clear()
    assert seen() is None


@needs_torch
def test_a_tensor_that_retains_its_gradient_keeps_it(torch: Any) -> None:
    y = leaf(torch).exp()
    y.retain_grad()
    y.sum().backward()
    seen = weakref.ref(y.grad)
    cache["activation"] = y
    del y
    report = cyclescope.why_alive(seen())
    [keeper] = report.keepers
    assert keeper.words.endswith("['activation'] (Tensor) → .grad"), report
    assert report.is_enough, report
    cache.clear()
    assert seen() is None


def function_hook(torch: Any) -> Any:
    y = leaf(torch) * 2
    owner = Owner(y=y)
    y.grad_fn.register_hook(lambda *gradients: owner and None)
    return y


def function_prehook(torch: Any) -> Any:
    y = leaf(torch) * 2
    owner = Owner(y=y)
    y.grad_fn.register_prehook(lambda gradients: owner and None)
    return y


HOOKS = """
import gc, sys
import torch, cyclescope, test_why_alive_torch as shapes

thing = getattr(shapes, sys.argv[1])(torch)
other = None
if sys.argv[2] == "other":
    thing, other = shapes.leaf(torch) * 2, shapes.leaf(torch) * 3
    owner = shapes.Owner(y=thing)
    other.grad_fn.register_hook(lambda *gradients: owner and None)
report = cyclescope.why_alive(thing)
print([[step.edge for step in loop] for loop in report.loops])
"""


def loops_of_hooks(make: Callable[[Any], Any], which: str) -> str:
    """The loops in a process of its own: no other test has left any hook there."""
    command = [sys.executable, "-c", HOOKS, make.__name__, which]
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


@needs_torch
@pytest.mark.parametrize("make", [function_hook, function_prehook])
def test_a_loop_through_the_hooks_of_a_function_is_named(
    make: Callable[[Any], Any], torch: Any
) -> None:
    assert survives(torch, make), "PyTorch frees it, so this is no example"
    found = loops_of_hooks(make, "own")
    assert found.count("'.hooks'") == 1, found


@needs_torch
def test_hooks_of_another_graph_are_not_taken_for_its_own() -> None:
    assert loops_of_hooks(function_hook, "other") == "[]\n"


@pytest.mark.parametrize("share", [lambda it: it[0].detach(), lambda it: it.numpy(), None])
def test_memory_that_stays_is_told(share: Callable[[Any], Any] | None) -> None:
    import torch

    tensor = torch.ones(1000)
    other = share(tensor) if share is not None else torch.ones(1000)
    report = cyclescope.why_alive(tensor)
    (*told,) = (note for note in report.notes if "The memory stays" in note)
    assert len(told) == (share is not None), str(report)
    assert all("local `other` in" in note for note in told), told
    del other
    assert "memory stays" not in str(cyclescope.why_alive(tensor))


def test_memory_that_c_may_keep_is_not_said_to_stay() -> None:
    import numpy as np
    import torch

    array = np.from_dlpack(torch.ones(1000))
    notes = " ".join(cyclescope.why_alive(array).notes)
    assert "The memory stays" not in notes
    assert "The memory may stay" in notes


def test_memory_that_goes_with_what_is_removed_is_not_said_to_stay() -> None:
    import torch

    tensor = torch.ones(1000)
    pair = (tensor, tensor[0].detach())
    del tensor
    report = cyclescope.why_alive(pair[0])
    assert report.is_enough
    assert [note for note in report.notes if "memory stays" in note] == []


def test_what_autocast_keeps_is_not_disproven() -> None:
    import torch

    layer = torch.nn.Linear(8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        kept = [layer(torch.ones(2, 8)).sum()]
        report = cyclescope.why_alive(layer.weight)
        (note,) = (note for note in report.notes if "torch.autocast" in note)
        weight = weakref.ref(layer.weight)
        del layer.weight
        kept.clear()
        assert weight() is not None
        assert not report.is_enough
        assert "torch.clear_autocast_cache()" in note
        torch.clear_autocast_cache()
        assert weight() is None
    layer = torch.nn.Linear(8, 8)
    kept = [layer(torch.ones(2, 8)).sum()]
    assert cyclescope.why_alive(layer.weight).is_enough
