"""The fixture ``tensor_cycles``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from cyclescope._forbid import Recorder, TensorCycleError
from cyclescope._native import CycleReport
from cyclescope._off import OFF
from cyclescope._pytest.check import CHECK
from cyclescope._pytest.checker import NAME, Checker


class TensorCycles:
    """The value of the fixture ``tensor_cycles``: the leaks of the current test."""

    def __init__(self, take: Callable[[], CycleReport]) -> None:
        self._take = take

    def collect(self) -> CycleReport:
        """Collect now and return what leaked since the test began, or since the previous call."""
        return self._take()

    def check(self) -> None:
        """Collect now and fail if a tensor leaked.

        Raises:
            TensorCycleError: If a tensor leaked. The error carries the report.
        """
        __tracebackhide__ = True
        report = self.collect()
        if report.leaks:
            raise TensorCycleError(report)


@contextlib.contextmanager
def opened(request: pytest.FixtureRequest) -> Iterator[TensorCycles]:
    """The fixture's value. It shares the recorder of the test's own check, if there is one."""
    if OFF:
        yield TensorCycles(Recorder(["any"], []).take)
        return
    item: pytest.Item = request.node
    check = item.stash.get(CHECK, None)
    if check is not None:
        yield TensorCycles(check.take_all)
        return
    checker = request.config.pluginmanager.get_plugin(NAME)
    if not isinstance(checker, Checker):
        raise pytest.UsageError("the fixture tensor_cycles requires pytest 8 or later")
    recorder = Recorder(*checker.what_to_look_for(item))
    try:
        yield TensorCycles(recorder.take)
    finally:
        recorder.stop()
