"""The cost of a check of new objects depends neither on the heap nor on what is imported."""

from __future__ import annotations

import gc
import sys
import time
from types import ModuleType

import pytest

from cyclescope import _native
from cyclescope._pytest.series import Alike, Series

MANY_MODULES = 20_000
MANY_OBJECTS = 500_000

pytestmark = pytest.mark.skipif(
    _native.begin_epoch() is None,
    reason="this interpreter's collector keeps no lists of generations: each check is whole",
)


def seconds_of_a_test() -> float:
    """The least processor time of what is done for one test: its beginning and two checks."""
    gc.collect()
    series = Series(Alike(("any",), (), fails=True, whole=False))
    durations = []
    for _ in range(30):
        begin = time.thread_time()
        series.begin("test")
        series.take()
        series.take()
        durations.append(time.thread_time() - begin)
    series.stop()
    return min(durations)


def is_about(seconds: float, before: float) -> bool:
    return seconds < 5 * before + 100e-6


def test_many_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    before = seconds_of_a_test()
    for number in range(MANY_MODULES):
        module = ModuleType(f"imported_{number}")
        module.__file__ = f"/program/imported_{number}.py"
        monkeypatch.setitem(sys.modules, module.__name__, module)
    assert is_about(seconds_of_a_test(), before)


def test_many_objects() -> None:
    before = seconds_of_a_test()
    heap = [[number] for number in range(MANY_OBJECTS)]
    assert is_about(seconds_of_a_test(), before)
    assert len(heap) == MANY_OBJECTS
