"""What grows, in device memory: every pitfall named, every look-alike silent, and a page of it."""

from __future__ import annotations

import json

import pytest

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
