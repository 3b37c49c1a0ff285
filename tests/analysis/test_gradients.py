"""What leaks hold in C++, gradients above all, against what goes when they are cut."""

from __future__ import annotations

import gc
import os
from typing import Any

import pytest

import cyclescope
from support.marks import needs_torch

pytestmark = [needs_torch, pytest.mark.usefixtures("collector_paused")]

CASES = int(os.environ.get("TEST_CASES", "12"))
LOT = 12


@pytest.fixture(autouse=True)
def warmed_up() -> None:
    """What PyTorch makes at the first backward pass and optimizer leaks, once a process."""
    from support.random_training import Training

    for number in range(12):
        Training(number)
    gc.collect()


@pytest.mark.parametrize("lot", range(0, CASES, LOT))
def test_what_is_held_is_what_goes(lot: int) -> None:
    from support.random_training import Training, bytes_of_cycles

    for number in range(lot, lot + LOT):
        goes = bytes_of_cycles(number)
        gc.collect()
        live = Training(number).live
        report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
        assert report.bytes_held == goes, f"program {number}\n{report}"
        del live


@pytest.mark.parametrize("unread", [False, True])
@pytest.mark.parametrize("lot", range(0, CASES, LOT))
def test_a_watch_says_so_too_of_what_it_may_read(lot: int, unread: bool) -> None:
    from support.random_training import Training, bytes_of_cycles

    for number in range(lot, lot + LOT):
        goes = bytes_of_cycles(number, unread)
        gc.collect()
        said: list[cyclescope.CycleReport] = []
        with cyclescope.observe_tensor_cycles(said.append, devices="any"):
            live = Training(number, unread).live
            gc.collect()
        held = sum(report.bytes_held for report in said)
        assert held <= goes if unread else held == goes, f"program {number}\n{said}"
        del live


def leaking(backward: bool = True) -> Any:
    """A layer in a cycle, with 4 KiB of weights."""
    import torch

    layer: Any = torch.nn.Linear(32, 32, bias=False)
    layer.me = [layer]
    if backward:
        layer(torch.ones(1, 32)).sum().backward()
    return layer


def held() -> list[tuple[int, str | None]]:
    """Size of each buffer, and what C++ had to do with it."""
    report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
    (leak,) = report.leaks
    assert leak.bytes_held == report.bytes_held == sum(buffer.bytes for buffer in leak.buffers)
    return [(buffer.bytes, buffer.kept_by) for buffer in leak.buffers]


def test_a_gradient_is_listed_as_one() -> None:
    leaking()
    assert held() == [(4096, None), (4096, "gradient")]
    leaking(backward=False)
    assert held() == [(4096, None)]


def test_a_gradient_that_is_in_use_is_not_held() -> None:
    gradients = [leaking().weight.grad]
    assert held() == [(4096, None)]
    del gradients


def test_a_graph_of_the_leak_refers_to_parameters() -> None:
    import torch

    layer = leaking()
    layer.loss = layer(torch.ones(1, 32)).sum()
    del layer
    assert sorted(held(), key=str) == [(4, None), (4096, "C++"), (4096, "gradient")]


def test_a_gradient_of_two_leaks_counts_once() -> None:
    import torch

    first, second = leaking(), Second()
    second.held = [first.weight.grad, torch.ones(1)]
    second.me = second
    del first, second
    report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
    assert sorted(leak.bytes_held for leak in report.leaks) == [4100, 8192]
    assert report.bytes_held == 8196
    assert all(leak.also_held_by for leak in report.leaks)


class Second:
    """Another leak."""

    held: Any
    me: object


def test_what_was_not_freed_is_not_said_to_be() -> None:
    leaking()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        assert held() == [(4096, None)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def test_a_check_leaves_no_object_behind() -> None:
    import torch

    def tensors() -> int:
        return sum(type(it) is torch.Tensor for it in gc.get_objects())

    live = leaking()
    live.me.clear()
    before = tensors()
    leaking()
    assert held() == [(4096, None), (4096, "gradient")]
    assert tensors() == before
    assert live.weight.grad is not None
    assert tensors() == before + 1


class Saver:
    """Its finalizer saves what it holds."""

    saved: Any = None

    def __init__(self, held: Any) -> None:
        self.held, self.me = held, self

    def __del__(self) -> None:
        Saver.saved = self.held


def test_the_watch_makes_no_object_of_the_gradient_of_what_a_finalizer_saves() -> None:
    import torch

    def tensors() -> int:
        return sum(type(it) is torch.Tensor for it in gc.get_objects())

    layer = leaking()
    before = tensors()
    with cyclescope.observe_tensor_cycles(lambda report: None, devices="any"):
        Saver(layer)
        del layer
        gc.collect()
    assert Saver.saved is not None
    assert tensors() == before
    assert Saver.saved.weight.grad is not None
    del Saver.saved.me
    Saver.saved = None
