"""What grows, in device memory: every pitfall named, every look-alike silent, and a page of it."""

from __future__ import annotations

import itertools
import json

import pytest
import torch

import cyclescope
import shared

pytestmark = pytest.mark.gpu


def watch(loop: shared.Loop, expected: shared.Expected) -> cyclescope.LeakMonitor:
    """Looks at the tensors of a GPU only."""
    monitor = cyclescope.LeakMonitor(
        every=expected.every, devices="cuda", min_bytes=0, max_share=float("inf")
    )
    with monitor:
        loop("cuda:0", expected.steps, monitor.step)
    return monitor


@pytest.mark.parametrize("name", shared.names())
def test_the_pitfall_is_named(name: str) -> None:
    program = shared.load(name)
    (found,) = watch(program.pitfall, program.EXPECTED).found
    assert found.pattern == program.EXPECTED.pattern
    assert program.EXPECTED.owner in found.owner


@pytest.mark.parametrize("name", shared.names())
def test_the_look_alike_is_not_told(name: str) -> None:
    program = shared.load(name)
    assert watch(program.look_alike, program.EXPECTED).found == []


def test_the_page_has_the_allocators_curve_beside_that_of_the_tensors() -> None:
    monitor = watch(shared.load("losses_kept").pitfall, shared.load("losses_kept").EXPECTED)
    report = json.loads(monitor.to_json())
    steps = [step for step, _, _ in report["all"]]
    assert [step for step, _, _ in report["allocated"]] == steps
    for (_, _, tensors), (_, _, allocated) in zip(report["all"], report["allocated"], strict=True):
        assert 0 < tensors <= allocated
    assert "allocated on all GPUs" in monitor.to_html()


def test_pinned_memory_is_a_counter() -> None:
    kept = []
    with cyclescope.LeakMonitor(every=1, max_share=float("inf")) as monitor:
        torch.zeros(1, device="cuda")
        for _ in range(20):
            kept.append(torch.empty(2**22, dtype=torch.uint8, pin_memory=True))
            monitor.step()
    counters = json.loads(monitor.to_json())["counters"]
    if not hasattr(torch._C, "_cuda_hostMemoryStats"):
        assert {each["pinned"] for each in counters} == {0}  # This PyTorch does not say.
        return
    pinned = [each["pinned"] for each in counters]
    assert [after - before for before, after in itertools.pairwise(pinned)] == [2**22] * 19
    assert "pinned host memory " in monitor.to_text()
    assert "pinned host memory " in monitor.to_html()
