"""Whether what lets go of an object frees it at once, by a collection, or never."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import cyclescope
from support.processes import run

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("collector_paused")

Made = tuple[Any, "weakref.ref[Any]"]


def generator() -> Made:
    def prefetch() -> Iterator[Any]:
        batch = torch.zeros(10)
        window = [batch]
        yield batch
        window.clear()

    suspended = prefetch()
    return suspended, weakref.ref(next(suspended))


def graph() -> Made:
    hidden = torch.ones(2, 4, requires_grad=True).tanh()
    return (hidden * hidden).sum(), weakref.ref(hidden)


def partial() -> Made:
    tensor = torch.zeros(10)
    return functools.partial(print, tensor, out=tensor), weakref.ref(tensor)


def function() -> Made:
    tensor = torch.zeros(10)

    def metric(value: Any, *, weight: Any = tensor) -> Any:
        return value * tensor * weight

    return metric, weakref.ref(tensor)


def error() -> Made:
    tensor = torch.zeros(10)
    caught: Any = ValueError("bad batch", tensor)
    caught.batch = tensor
    return caught, weakref.ref(tensor)


def view() -> Made:
    tensor = torch.zeros(10)
    part: Any = tensor[2:]
    part.whole = tensor
    return part, weakref.ref(tensor)


def nested() -> Made:
    tensor = torch.zeros(10)
    lists = [tensor]
    return (lists, {"all": lists, "it": tensor}), weakref.ref(tensor)


@pytest.mark.parametrize(
    "make", [generator, graph, partial, function, error, view, nested], ids=lambda it: it.__name__
)
def test_two_ways_to_an_object_are_no_cycle(make: Callable[[], Made]) -> None:
    kept, seen = make()
    said = cyclescope.why_alive(seen())
    assert (said.is_enough, said.by_collection) == (True, False)
    del kept
    assert seen() is None


def test_a_cycle_among_what_goes_too_takes_a_collection() -> None:
    def make() -> Made:
        tensor = torch.zeros(10)

        def call() -> Any:
            return call, tensor

        return call, weakref.ref(tensor)

    kept, seen = make()
    said = cyclescope.why_alive(seen())
    assert (said.is_enough, said.by_collection) == (True, True)
    del kept
    assert seen() is not None
    gc.collect()
    assert seen() is None


class Owner:
    pass


def by_hook() -> Any:
    owner: Any = Owner()
    owner.leaf = torch.zeros(5000, requires_grad=True)
    owner.scaled = owner.leaf * 2
    owner.scaled.register_hook(lambda gradient: gradient * owner.scale)
    owner.scale = 2.0
    return owner


def by_gradient() -> Any:
    owner: Any = Owner()
    owner.weight = torch.nn.Parameter(torch.zeros(5000))
    owner.weight.grad = torch.zeros(5000)
    owner.weight.grad.owner = owner
    return owner


@pytest.mark.parametrize("make", [by_hook, by_gradient], ids=lambda it: it.__name__)
def test_what_no_collection_frees_is_not_retained(make: Callable[[], Any]) -> None:
    owner: Any = make()
    rows = cyclescope.heap().top("owner", 50).rows
    ours = [row for row in rows if "`owner`" in row.name]
    assert ours
    assert all((row.retained_bytes, row.collected_bytes) == (0, 0) for row in ours)
    # The loop is opened for the sake of the other tests.
    owner.__dict__.clear()


def test_the_variables_of_a_module_are_no_loop() -> None:
    found = run("""
        import gc, json, torch, weakref, cyclescope
        gc.disable()
        def clip(gradient):
            return gradient.clamp(-1, 1)
        leaf = torch.zeros(1000, requires_grad=True)
        loss = leaf * 2
        loss.register_hook(clip)
        said = cyclescope.why_alive(loss)
        seen = weakref.ref(loss)
        del loss
        print(json.dumps([said.is_enough, len(said.loops), seen() is None]))
    """)
    assert found == [True, 0, True]


class Encoder:
    @staticmethod
    @functools.lru_cache
    def static(size: int) -> Any:
        return torch.zeros(size)

    dispatched: Any = functools.singledispatchmethod(
        functools.lru_cache(lambda self, size: torch.zeros(size))
    )
    part: Any = functools.partialmethod(functools.lru_cache(lambda self, n: torch.zeros(n)), 3)

    @functools.lru_cache  # noqa: B019
    def plain(self, size: int) -> Any:
        return torch.zeros(size)


@pytest.mark.parametrize("name", ["static", "dispatched", "part", "plain"])
def test_the_call_that_clears_a_cache_can_be_run(name: str) -> None:
    encoder = Encoder()
    made = encoder.part() if name == "part" else getattr(encoder, name)(10)
    said = cyclescope.why_alive(made)
    calls = [keeper.release.split("`")[1] for keeper in said.keepers if "`" in keeper.release]
    calls = [call for call in calls if "." in call]
    for call in calls:
        exec(call.replace(f"{__name__}.", ""), globals())
    if name == "plain":
        assert calls
        assert len(cyclescope.why_alive(made).keepers) < len(said.keepers)
    Encoder.static.cache_clear()
    Encoder.plain.cache_clear()
