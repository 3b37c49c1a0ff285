"""What grows is told by what it is and by a name that lasts, with advice that is right for it."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import weakref
from collections.abc import Callable

import pytest

import cyclescope

try:
    import torch
except ImportError:
    pytest.skip("what grows is looked for in PyTorch's tensors", allow_module_level=True)

from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

pytestmark = pytest.mark.usefixtures("no_garbage")


def watched() -> cyclescope.LeakMonitor:
    return cyclescope.LeakMonitor(every=1, devices="any", min_bytes=1, max_share=float("inf"))


def of_tensors(monitor: cyclescope.LeakMonitor) -> cyclescope.Growth:
    (told,) = (growth for growth in monitor.found if growth.tensors)
    return told


def keep(make: Callable[[], list[torch.Tensor]]) -> cyclescope.Growth:
    kept: list[torch.Tensor] = []
    with watched() as monitor:
        for _ in range(30):
            kept += make()
            monitor.step()
    return of_tensors(monitor)


def test_tensors_on_the_host_are_not_to_be_moved_there() -> None:
    told = keep(lambda: [torch.ones(64)])
    assert told.pattern == "container-grows"
    assert ".cpu()" not in told.advice
    copies = keep(lambda: [nn.Linear(8, 8).weight])
    assert copies.pattern == "model-copies"
    assert "to the CPU" not in copies.advice


def test_views_of_larger_storages_are_to_be_cloned() -> None:
    told = keep(lambda: [torch.ones(256, 64)[0]])
    assert ".clone()" in told.advice
    assert "views of larger storages (the youngest shows 256 bytes of 64.0 KiB)" in told.summary
    assert ".clone()" not in keep(lambda: [torch.ones(256, 64)]).advice
    assert ".clone()" not in keep(lambda: list(torch.ones(4, 64))).advice
    assert ".clone()" not in keep(lambda: [torch.ones(64, 64).t()]).advice


def test_a_cache_of_tensors_is_to_have_a_limit() -> None:
    @functools.cache
    def mask(size: int) -> torch.Tensor:
        return torch.ones(size)

    with watched() as monitor:
        for step in range(30):
            mask(64 + step)
            monitor.step()
    told = of_tensors(monitor)
    assert told.pattern == "cache-without-limit"
    assert "cache_clear()" in told.advice


def test_a_cache_with_a_limit_is_not_told() -> None:
    @functools.lru_cache(maxsize=1000)
    def mask(size: int) -> torch.Tensor:
        return torch.ones(size)

    with watched() as monitor:
        for step in range(30):
            mask(64 + step)
            monitor.step()
    assert not [growth for growth in monitor.found if growth.tensors]


@pytest.mark.parametrize("kind", ["module", "tensor"])
def test_hooks_are_to_be_removed(kind: str) -> None:
    layer = nn.Linear(4, 4)
    with watched() as monitor:
        for _ in range(30):
            factor = torch.ones(64)
            if kind == "module":
                layer.register_forward_hook(lambda *_, factor=factor: None)
            else:
                layer.weight.register_hook(lambda _, factor=factor: None)  # type: ignore[no-untyped-call]
            monitor.step()
    told = of_tensors(monitor)
    assert told.owner.endswith("_hooks"), told
    assert "`remove()`" in told.advice
    assert "deque" not in told.advice


class Ended:
    """Steps a monitor at the end of each step of an optimizer, as ``run --growth`` does."""

    def __init__(self, monitor: cyclescope.LeakMonitor) -> None:
        self.handle = register_optimizer_step_post_hook(lambda *_: monitor.step())  # type: ignore[arg-type]

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.handle.remove()


def test_parameters_of_an_optimizer_are_no_copies() -> None:
    layer = nn.Linear(4, 4)
    opt = torch.optim.SGD(layer.parameters(), lr=0.1)
    with watched() as monitor, Ended(monitor):
        for _ in range(30):
            opt.add_param_group({"params": list(nn.Linear(32, 32).parameters())})
            layer(torch.ones(4)).sum().backward()
            opt.step()
            opt.zero_grad()
    told = of_tensors(monitor)
    assert "`add_param_group`" in told.advice
    assert "copies" not in told.advice
    assert told.owner.startswith("local `opt` in `test_parameters"), told.owner


def test_the_state_of_an_optimizer_is_not_to_be_cleared() -> None:
    layers = [nn.Linear(16, 16) for _ in range(32)]
    opt = torch.optim.Adam(layers[0].parameters())
    with watched() as monitor, Ended(monitor):
        for active in range(1, 31):
            if active > 1:
                opt.add_param_group({"params": list(layers[active - 1].parameters())})
            out = torch.ones(16)
            for layer in layers[:active]:
                out = layer(out)
            out.sum().backward()  # type: ignore[no-untyped-call]
            opt.step()
            opt.zero_grad()
    (told,) = (growth for growth in monitor.found if growth.owner.endswith(".state"))
    assert "clear it" not in told.advice
    assert "unfrozen" in told.advice
    assert told.owner.startswith("local `opt` in `test_the_state"), told.owner


class Trainer:
    """Keeps what its steps compute."""

    def __init__(self) -> None:
        self.metrics: list[torch.Tensor] = []

    def step(self, monitor: cyclescope.LeakMonitor) -> None:
        self.metrics.append(torch.ones(64))
        monitor.step()


trainer = Trainer()


def test_the_name_of_a_module_is_preferred_to_that_of_a_call() -> None:
    with watched() as monitor:
        for _ in range(30):
            trainer.step(monitor)
    owner = of_tensors(monitor).owner
    assert owner.startswith(f"module `{__name__}` → `trainer`"), owner
    assert owner.endswith(".metrics")


def outer(monitor: cyclescope.LeakMonitor) -> None:
    mine = Trainer()
    for _ in range(30):
        mine.step(monitor)


def test_the_outermost_call_names_it() -> None:
    with watched() as monitor:
        outer(monitor)
    assert of_tensors(monitor).owner.startswith("local `mine` in `outer`")


@pytest.mark.parametrize("beside", [False, True])
def test_tensors_that_no_longer_become_more_are_withdrawn(beside: bool) -> None:
    cache: dict[int, torch.Tensor] = {}
    leak: list[torch.Tensor] = []
    with watched() as monitor:
        for step in range(90):
            if step < 30:
                cache[step] = torch.ones(2**14)
            if beside:
                leak.append(torch.ones(2**12))
            monitor.step()
    assert [growth.owner.split("`")[1] for growth in monitor.found] == ["leak"] * beside
    assert "explained by `cache` (no longer growing)" in monitor.headline
    assert "has stopped growing since it was reported" in monitor.to_text()


def test_rare_samples_do_not_delay_that() -> None:
    cache: dict[int, torch.Tensor] = {}
    with cyclescope.LeakMonitor(every=10, devices="any", min_bytes=1, max_share=1e-9) as monitor:
        for step in range(1600):
            if step < 200:
                cache[step] = torch.ones(2**8)
            monitor.step()
    assert monitor.found == []
    assert "`cache` (no longer growing)" in monitor.headline


class Sample:
    """Can be referred to weakly."""


def test_what_stays_for_as_long_as_its_key_is_let_go_of_by_that() -> None:
    samples: list[Sample] = []
    features: weakref.WeakKeyDictionary[Sample, torch.Tensor] = weakref.WeakKeyDictionary()
    with watched() as monitor:
        for _ in range(30):
            samples.append(Sample())
            features[samples[-1]] = torch.ones(64)
            monitor.step()
    told = of_tensors(monitor)
    assert "`features`" in told.owner
    assert "goes when its key does" in told.advice
    assert "deque" not in told.advice


def test_the_largest_is_the_example() -> None:
    told = keep(lambda: [torch.ones(1), torch.ones(64), torch.ones(2)])
    assert told.example == "float32[64] on cpu"


def test_a_list_that_a_weak_key_has_is_the_owner() -> None:
    model = Sample()
    losses: weakref.WeakKeyDictionary[Sample, list[torch.Tensor]] = weakref.WeakKeyDictionary()
    with watched() as monitor:
        for _ in range(30):
            losses.setdefault(model, []).append(torch.ones(64))
            monitor.step()
    assert "goes when its key does" not in of_tensors(monitor).advice


class First:
    def __init__(self) -> None:
        self.data = torch.ones(64)
        self.callback = self.called

    def called(self) -> None:
        pass


class Second:
    def __init__(self) -> None:
        self.data = torch.ones(64)
        self.callback = self.called

    def called(self) -> None:
        pass


def test_garbage_is_told_by_what_makes_it() -> None:
    gc.disable()
    try:
        with watched() as monitor:
            for _ in range(30):
                First()
                Second()
                monitor.step()
    finally:
        gc.enable()
    told = [it for it in monitor.found if it.pattern == "garbage-accumulates"]
    assert sorted("Second" in it.owner for it in told) == [False, True]
    assert {it.tensors for it in told} == {told[0].tensors}
    assert "The program still refers" not in monitor.to_html()
    assert "stays until a garbage collection" in monitor.to_html()
    gc.collect()


def test_garbage_that_no_collection_frees_does_not_wait_for_one() -> None:
    frozen = [First() for _ in range(30)]
    gc.freeze()
    gc.disable()
    try:
        with watched() as monitor:
            while frozen:
                frozen.pop().data = torch.ones(64)
                monitor.step()
        assert monitor.found == []
    finally:
        gc.unfreeze()
        gc.enable()
        gc.collect()


def test_what_an_exit_stack_calls_is_not_to_be_cleared() -> None:
    with contextlib.ExitStack() as stack, watched() as monitor:
        for _ in range(30):
            stack.callback(id, torch.ones(64))
            monitor.step()
    told = of_tensors(monitor)
    assert "what an exit stack is to call" in told.summary
    assert "clear it" not in told.advice
    assert "with contextlib.ExitStack()" in told.advice


def test_what_one_iterator_is_behind_another_is_told_as_that() -> None:
    ahead, behind = itertools.tee(torch.ones(64) for _ in range(30))
    with watched() as monitor:
        for _ in ahead:
            monitor.step()
    told = of_tensors(monitor)
    del behind
    assert "further and further behind another" in told.summary
    assert "clear it" not in told.advice


def test_buffers_of_a_module_are_to_have_one_name() -> None:
    module = nn.Module()
    with watched() as monitor:
        for step in range(30):
            module.register_buffer(f"mask{step}", torch.ones(64))
            monitor.step()
    told = of_tensors(monitor)
    assert told.summary.endswith("gets more and more buffers")
    assert "under the same name" in told.advice
