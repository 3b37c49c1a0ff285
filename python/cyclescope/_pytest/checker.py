"""Checks each test for leaks."""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import Any

import pytest

from cyclescope import _native
from cyclescope._devices import device_names
from cyclescope._files import write_whole
from cyclescope._forbid import Recorder
from cyclescope._native import CycleReport
from cyclescope._pytest.options import Choices
from cyclescope._selection import ignored_names
from cyclescope._watch import blindness

ATTRIBUTE = "tensor_cycles"
"""Where a test's report carries the leaks, as JSON; pytest-xdist brings it from its workers."""
BLIND = "tensor_cycles_blind"
"""The attribute that holds the reason why nothing could be found, if there is one."""

SECTION = "tensor cycles"

MEANT = {"device": "; did you mean devices?", "allow": "; did you mean ignore?"}


class Check:
    """The check of a running test."""

    def __init__(self, recorder: Recorder, *, fails: bool, blind: str | None) -> None:
        self.recorder = recorder
        self.fails = fails
        self.blind = blind
        """Why nothing can be found; None if leaks can be found."""
        self.failed = False
        """The test has failed, by itself or because of a leak; do not fail it again."""
        self.found: CycleReport | None = None
        """The leaks of the current phase."""


CHECK = pytest.StashKey[Check]()


class Checker:
    """Records each test from before fixture set-up until after teardown.

    Leaks are checked when the test function returns, and again after teardown, because cycles that
    fixtures hold become garbage only then.
    """

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._told: set[str] = set()

    def begin(self, item: pytest.Item, *, fails: bool) -> Check:
        """Start to record the leaks of a test."""
        devices, ignore = self._what_to_look_for(item)
        check = Check(Recorder(devices, ignore), fails=fails, blind=blindness(devices))
        item.stash[CHECK] = check
        return check

    def _what_to_look_for(self, item: pytest.Item) -> tuple[list[str], list[str]]:
        devices, ignore = self._choices.devices, list(self._choices.ignore)
        # The closest marker comes last, so its devices apply.
        for marker in reversed(list(item.iter_markers("no_tensor_cycles"))):
            unknown = sorted(marker.kwargs.keys() - {"devices", "ignore"})
            if marker.args or unknown:
                meant = MEANT.get(unknown[0], "") if unknown else ""
                raise pytest.UsageError(
                    f"{item.nodeid}: no_tensor_cycles takes devices=... and ignore=[...], not "
                    f"{', '.join([*map(repr, marker.args), *unknown])}{meant}"
                )
            try:
                if "devices" in marker.kwargs:
                    devices = device_names(marker.kwargs["devices"])
                ignore += ignored_names(marker.kwargs.get("ignore", []))
            except (TypeError, ValueError) as error:
                raise pytest.UsageError(f"{item.nodeid}: no_tensor_cycles: {error}") from None
        return devices, ignore

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        mode = self._choices.mode
        marked = item.get_closest_marker("no_tensor_cycles") is not None
        wrong: pytest.UsageError | None = None
        if mode in ("report", "error") or (marked and mode != "off"):
            fails = (marked or mode == "error") and not self._choices.update_baseline
            _forget_last_exception()
            try:
                self.begin(item, fails=fails)
            except pytest.UsageError as error:
                wrong = error
        try:
            # Set up first, so that teardown has what it needs.
            result = yield
        except BaseException:
            if (check := item.stash.get(CHECK, None)) is not None:
                check.failed = True
            raise
        if wrong is not None:
            raise wrong
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        try:
            result = yield
        except BaseException:
            if (check := item.stash.get(CHECK, None)) is not None:
                report = self._look(item, check)
                if report is not None:
                    item.add_report_section("call", SECTION, str(report))
                check.failed = True
            raise
        self._check(item, "call")
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, Any, Any]:
        check = item.stash.get(CHECK, None)
        try:
            try:
                result = yield
            except BaseException:
                if check is not None:
                    check.failed = True
                raise
            # pytest keeps the fixtures' values until just after this.
            if check is not None and isinstance(getattr(item, "funcargs", None), dict):
                item.funcargs.clear()  # type: ignore[attr-defined]
            if _tears_down(item, nextitem):
                self._check(item, "teardown")
            return result
        finally:
            if check is not None:
                check.recorder.stop()

    def _check(self, item: pytest.Item, when: str) -> None:
        """Check for leaks, and fail the test if there are new ones."""
        check = item.stash.get(CHECK, None)
        if check is None or (when == "teardown" and check.failed):
            # The exception of a failed test, which pytest held until now, contains cycles.
            return
        report = self._look(item, check)
        if report is None:
            return
        new = [leak.signature for leak in report.leaks if self._is_new(leak.signature)]
        if check.fails and new:
            check.failed = True
            found = _native.select(report, new)
            failure = pytest.fail.Exception(self._failure(found), pytrace=False)
            failure.report = found  # type: ignore[attr-defined]
            raise failure
        item.add_report_section(when, SECTION, str(report))

    def _is_new(self, signature: str) -> bool:
        return self._choices.baseline is None or signature not in self._choices.baseline

    def _look(self, item: pytest.Item, check: Check) -> CycleReport | None:
        report = check.recorder.take()
        if not report.leaks:
            return None
        check.found = report
        for leak in report.leaks:
            item.user_properties.append((ATTRIBUTE, f"{leak.signature} {leak}"))
        return report

    def _failure(self, report: CycleReport) -> str:
        try:
            page = self._choices.report_dir / f"{report.leaks[0].signature}.html"
            write_whole(page, report.to_html())
            where = f"Page: {page}"
        except OSError as error:
            where = f"Page not written: {error}"
        return f"tensors were kept alive by reference cycles\n\n{report}\n{where}"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        _shorten_in_summary(report, call)
        check = item.stash.get(CHECK, None)
        if check is not None and check.blind is not None:
            setattr(report, BLIND, check.blind)
        if check is not None and check.found is not None:
            found, check.found = check.found, None
            # Each leak is written out once, as all of a large suite's would fill the memory.
            carried = _native.without_details(found, self._told)
            self._told.update(leak.signature for leak in found.leaks)
            setattr(report, ATTRIBUTE, carried.to_json())
        return report


def _shorten_in_summary(report: pytest.TestReport, call: pytest.CallInfo[None]) -> None:
    """Shorten a leak trace to one line in pytest's short summary.

    On CI services the summary repeats whole messages, and the trace is already in the failure.
    """
    found = getattr(call.excinfo and call.excinfo.value, "report", None)
    crash = getattr(report.longrepr, "reprcrash", None)
    if isinstance(found, CycleReport) and found.leaks and crash is not None:
        others = len(found.leaks) - 1
        crash.message = f"{found.leaks[0]}{f' (and {others} more)' if others else ''}"


def _tears_down(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """True if teardown may release objects that the test function itself did not hold.

    Otherwise nothing new can be found, and a check is slow in a process with many imports.
    """
    plain = isinstance(item, pytest.Function) and item.cls is None and not item.fixturenames
    return not plain or nextitem is None or nextitem.parent is not item.parent


def _forget_last_exception() -> None:
    """Release the exception of the last failed test and what its frames hold.

    pytest keeps it for debuggers until the next test is called. Released only then, it would look
    like a leak of that test.
    """
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        if hasattr(sys, name):
            delattr(sys, name)
