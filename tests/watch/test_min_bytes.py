"""Leaks that are too small to warn of."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable

import numpy
import pytest

import cyclescope
from support.processes import python

pytestmark = pytest.mark.usefixtures("collector_paused")

MIB = 1 << 20


class Small:
    """Refers to itself, and holds an array."""

    def __init__(self, size: int) -> None:
        self.me = self
        self.array = numpy.zeros(size, numpy.uint8)


class Other(Small):
    """Another leak."""


@pytest.fixture
def default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CYCLESCOPE_MIN_BYTES")


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The first lines of the warnings of leaks."""
    said = [record.getMessage() for record in caplog.records]
    return [line for line in said if "reference cycle" in line]


def leak(watch: cyclescope.Watch, what: type[Small], size: int) -> None:
    what(size)
    gc.collect()
    assert watch.flush(60)


@pytest.mark.usefixtures("default")
def test_a_small_leak_is_counted_and_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with cyclescope.warn_tensor_cycles(devices="any") as watch:
        leak(watch, Small, MIB - 1)
        assert warned(caplog) == []
        assert [(seen.count, seen.bytes, seen.reported) for seen in watch.leaks] == [
            (1, MIB - 1, False)
        ]
        assert watch.report is None
        leak(watch, Other, MIB)
        (line,) = warned(caplog)
        assert "Other.me" in line
    assert watch.report is not None
    assert len(watch.report.leaks) == 1


@pytest.mark.usefixtures("default")
def test_a_small_leak_that_adds_up_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    with cyclescope.warn_tensor_cycles(devices="any") as watch:
        for number in range(8):
            leak(watch, Small, MIB // 4)
            assert len(warned(caplog)) == (number >= 3)
        (seen,) = watch.leaks
        assert (seen.count, seen.bytes, seen.reported) == (8, 2 * MIB, True)
    assert watch.report is not None
    assert watch.report.leaks[0].count == 8


def test_it_can_be_chosen(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cyclescope.warn_tensor_cycles(devices="any", min_bytes=101) as watch:
        leak(watch, Small, 100)
        assert warned(caplog) == []
        leak(watch, Other, 101)
        assert len(warned(caplog)) == 1
    caplog.clear()
    monkeypatch.setenv("CYCLESCOPE_MIN_BYTES", "1000")
    with cyclescope.warn_tensor_cycles(devices="any") as watch:
        leak(watch, Small, 999)
        assert warned(caplog) == []
        leak(watch, Other, 1000)
        assert len(warned(caplog)) == 1


@pytest.mark.usefixtures("default")
def test_an_observer_is_told_of_all(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[int] = []
    with cyclescope.observe_tensor_cycles(
        lambda report: seen.append(report.bytes_held), devices="any"
    ) as watch:
        leak(watch, Small, 1)
    assert seen == [1]


@pytest.mark.usefixtures("default")
def test_checks_find_all_unless_asked_not_to() -> None:
    Small(1)
    assert len(cyclescope.find_tensor_cycles(devices="any").leaks) == 1
    Small(1)
    assert cyclescope.find_tensor_cycles(devices="any", min_bytes=2).leaks == []
    Small(1)
    cyclescope.assert_no_tensor_cycles(min_bytes=2)
    with cyclescope.forbid_tensor_cycles(min_bytes=2):
        Small(1)
    with (
        pytest.raises(cyclescope.TensorCycleError),
        cyclescope.forbid_tensor_cycles(min_bytes=2),
    ):
        Small(2)


def test_more_than_any_memory_is_no_error() -> None:
    gc.collect()
    Small(1)
    assert cyclescope.find_tensor_cycles(devices="any", min_bytes=10**30).leaks == []


@pytest.mark.parametrize("value", [-1, 1.5, "1", True, None])
def test_a_wrong_number_is_refused(value: object) -> None:
    calls: list[Callable[..., object]] = [
        cyclescope.find_tensor_cycles,
        cyclescope.forbid_tensor_cycles,
    ]
    if value is not None:
        calls.append(cyclescope.warn_tensor_cycles)
    for call in calls:
        with pytest.raises(ValueError, match="min_bytes must be a number of bytes"):
            call(min_bytes=value)


def test_the_summary_at_the_end_tells_of_small_ones_beside_others() -> None:
    program = """
import gc, cyclescope, numpy
class A:
    def __init__(self, size):
        self.me, self.array = self, numpy.zeros(size, numpy.uint8)
class B(A): pass
cyclescope.warn_tensor_cycles(devices="any")
A(100)
if LARGE:
    B(1 << 20)
gc.collect()
"""
    environment = {k: v for k, v in os.environ.items() if k != "CYCLESCOPE_MIN_BYTES"}
    for large in (True, False):
        told = python(
            "-c", program.replace("LARGE", str(large)), env=environment, check=True
        ).stderr
        assert ("because smaller than min_bytes: 1 more, 100 bytes in total" in told) == large
        assert ("reference cycle" in told) == large
