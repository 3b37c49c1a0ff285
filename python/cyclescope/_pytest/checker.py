"""Checks each test for leaks."""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import Any

import pytest

from cyclescope import _native
from cyclescope._devices import blindness, device_names
from cyclescope._files import reason, write_whole
from cyclescope._forbid import Recorder
from cyclescope._native import CycleReport
from cyclescope._pytest.options import Choices
from cyclescope._pytest.series import Alike, LateLeak, Reach, Series
from cyclescope._selection import ignored_names
from cyclescope._suggest import did_you_mean

ATTRIBUTE = "tensor_cycles"
"""Where a test's report carries the leaks, as JSON; pytest-xdist brings it from its workers."""
LATE = "tensor_cycles_late"
"""Where it carries the leaks of earlier tests: rows of JSON and which tests made the leak."""
BLIND = "tensor_cycles_blind"
"""The attribute that holds the reason why nothing could be found, if there is one."""

SECTION = "tensor cycles"
KEPT = "tensors were kept alive by reference cycles"

ARGUMENTS = ("devices", "ignore")
"""Of the marker ``no_tensor_cycles``."""


class Check:
    """The check of a running test."""

    def __init__(self, of: Recorder | Series, *, fails: bool, blind: str | None) -> None:
        self.of = of
        """The recorder of this test, or the series that it belongs to."""
        self.fails = fails
        self.blind = blind
        """Why nothing can be found; None if leaks can be found."""
        self.failed = False
        """The test has failed, by itself or because of a leak; do not fail it again."""
        self.found: CycleReport | None = None
        """The leaks of the current phase."""
        self.late: list[LateLeak] = []
        """The leaks of earlier tests that were found after this one."""

    def take(self, reach: Reach) -> CycleReport:
        """What the test leaked since it began, or since the previous call."""
        return self.of.take(reach) if isinstance(self.of, Series) else self.of.take()

    def take_all(self) -> CycleReport:
        """The same, for sure: a look at the whole heap."""
        return self.take(Reach.HEAP)

    def fail_by_itself(self) -> None:
        """The test has failed, and not because of a leak."""
        self.failed = True
        if isinstance(self.of, Series):
            self.of.fail()


CHECK = pytest.StashKey[Check]()


class Checker:
    """Records each test from before fixture set-up until after teardown.

    Leaks are checked when the test function returns, and again after teardown, because cycles that
    fixtures hold become garbage only then. Tests that are checked alike form a series, in which a
    check looks only at what the test made; so there is a further check when a module ends, and when
    the series does.
    """

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._told: set[str] = set()
        self._series: Series | None = None

    def _begin(self, item: pytest.Item, alike: Alike) -> None:
        """Start to record the leaks of a test."""
        blind = blindness(list(alike.devices))
        of: Recorder | Series | None = None
        if not alike.whole:
            if self._series is None or self._series.alike != alike:
                self._stop_series()
                self._series = Series(alike)
            if self._series.begin(item.nodeid):
                of = self._series
        if of is None:
            self._stop_series()
            of = Recorder(alike.devices, alike.ignore)
        item.stash[CHECK] = Check(of, fails=alike.fails, blind=blind)

    def _stop_series(self) -> None:
        if self._series is not None:
            self._series.stop()
            self._series = None

    def _alike(self, item: pytest.Item) -> Alike | None:
        """How to check a test; None if it is not to be checked."""
        mode = self._choices.mode
        marked = item.get_closest_marker("no_tensor_cycles") is not None
        if mode not in ("report", "error") and (not marked or mode == "off"):
            return None
        devices, ignore = self.what_to_look_for(item)
        # Who asks for a collection means the whole heap.
        asks = "tensor_cycles" in getattr(item, "fixturenames", ())
        return Alike(
            devices=tuple(devices),
            ignore=tuple(ignore),
            fails=(marked or mode == "error") and not self._choices.update_baseline,
            whole=self._choices.whole or asks,
        )

    def what_to_look_for(self, item: pytest.Item) -> tuple[list[str], list[str]]:
        devices, ignore = self._choices.devices, list(self._choices.ignore)
        # The closest marker comes last, so its devices apply.
        for marker in reversed(list(item.iter_markers("no_tensor_cycles"))):
            unknown = sorted(marker.kwargs.keys() - set(ARGUMENTS))
            if marker.args or unknown:
                meant = _meant(unknown[0]) if unknown else ""
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
        wrong: pytest.UsageError | None = None
        try:
            alike = self._alike(item)
            if alike is not None:
                _forget_last_exception()
                self._begin(item, alike)
        except pytest.UsageError as error:
            wrong = error
        try:
            # Set up first, so that teardown has what it needs.
            result = yield
        except BaseException:
            if (check := item.stash.get(CHECK, None)) is not None:
                check.fail_by_itself()
            raise
        if wrong is not None:
            # Without a traceback, which would show this plugin.
            raise pytest.fail.Exception(str(wrong), pytrace=False)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        check = item.stash.get(CHECK, None)
        try:
            result = yield
        except BaseException:
            if check is not None:
                report = self._look(item, check, Reach.TEST)
                if report is not None:
                    item.add_report_section("call", SECTION, str(report))
                check.fail_by_itself()
            raise
        if check is not None:
            sentences, found = self._check(item, check, "call", Reach.TEST)
            _fail(sentences, found, late=False)
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
                    check.fail_by_itself()
                    self._check_after(item, nextitem, check)
                raise
            if check is not None:
                # pytest keeps the fixtures' values until just after this.
                if isinstance(getattr(item, "funcargs", None), dict):
                    item.funcargs.clear()  # type: ignore[attr-defined]
                sentences, found, late = self._check_after(item, nextitem, check)
                _fail(sentences, found, late=late)
            return result
        finally:
            if check is not None and isinstance(check.of, Recorder):
                check.of.stop()

    def _check_after(
        self, item: pytest.Item, nextitem: pytest.Item | None, check: Check
    ) -> tuple[list[str], list[CycleReport], bool]:
        """Check after teardown; and if a series or a module of it ends, earlier tests too.

        Returns:
            As :meth:`_check`, and whether there are only leaks of earlier tests.
        """
        series = check.of if isinstance(check.of, Series) else None
        ends = series is not None and self._ends(series, nextitem)
        if ends:
            reach = Reach.HEAP
        elif series is not None and _module(item) is not _module(nextitem):
            reach = Reach.SERIES
        elif not check.failed and _tears_down(item, nextitem):
            reach = Reach.TEST
        else:
            return [], [], False
        sentences, found = self._check(item, check, "teardown", reach)
        only_late = not found
        if series is not None:
            late = self._check_late(item, check, series.take_late())
            sentences += late[0]
            found += late[1]
        if ends:
            self._stop_series()
        return sentences, found, only_late

    def _ends(self, series: Series, nextitem: pytest.Item | None) -> bool:
        try:
            return nextitem is None or self._alike(nextitem) != series.alike
        except pytest.UsageError:
            return True

    def _check(
        self, item: pytest.Item, check: Check, when: str, reach: Reach
    ) -> tuple[list[str], list[CycleReport]]:
        """Check for leaks of the test; what to fail it with, if there are new ones."""
        if when == "teardown" and check.failed:
            # The exception of a failed test, which pytest held until now, contains cycles.
            if isinstance(check.of, Series):
                check.take(reach)
            return [], []
        report = self._look(item, check, reach)
        if report is None:
            return [], []
        new = [leak.signature for leak in report.leaks if self._is_new(leak.signature)]
        if check.fails and new:
            check.failed = True
            found = _native.select(report, new)
            return [KEPT, f"{found}\n{self._page(found)}"], [found]
        item.add_report_section(when, SECTION, str(report))
        return [], []

    def _check_late(
        self, item: pytest.Item, check: Check, late: list[LateLeak]
    ) -> tuple[list[str], list[CycleReport]]:
        """What to fail the teardown with because of leaks of earlier tests."""
        sentences: list[str] = []
        found: list[CycleReport] = []
        for one in late:
            (leak,) = one.report.leaks
            item.user_properties.append((ATTRIBUTE, f"{leak.signature} {leak}; {one}"))
            if check.fails and self._is_new(leak.signature):
                sentences += [
                    f"{KEPT}, {one}",
                    f"{one.report}\n{self._page(one.report)}",
                ]
                found.append(one.report)
            else:
                item.add_report_section("teardown", SECTION, f"{one}\n{one.report}")
        check.late += late
        return sentences, found

    def _is_new(self, signature: str) -> bool:
        return self._choices.baseline is None or signature not in self._choices.baseline

    def _look(self, item: pytest.Item, check: Check, reach: Reach) -> CycleReport | None:
        report = check.take(reach)
        if not report.leaks:
            return None
        check.found = report
        for leak in report.leaks:
            item.user_properties.append((ATTRIBUTE, f"{leak.signature} {leak}"))
        return report

    def _page(self, report: CycleReport) -> str:
        try:
            page = self._choices.report_dir / f"{report.leaks[0].signature}.html"
            write_whole(page, report.to_html())
            return f"Page: {page}"
        except OSError as error:
            return f"Page not written: {reason(error)}"

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
            setattr(report, ATTRIBUTE, self._carried(found))
        if check is not None and check.late:
            late, check.late = check.late, []
            rows = [
                [self._carried(it.report), it.tests if it.certain else [str(it)]] for it in late
            ]
            setattr(report, LATE, rows)
        return report

    def _carried(self, report: CycleReport) -> str:
        """The report for the summary, which has each leak once: all would fill the memory."""
        carried = _native.without_details(report, self._told)
        self._told.update(leak.signature for leak in report.leaks)
        return carried.to_json()

    def pytest_sessionfinish(self) -> None:
        """End what an interrupt left."""
        self._stop_series()


def _fail(sentences: list[str], found: list[CycleReport], *, late: bool) -> None:
    """Fail the phase, if there are leaks to fail it with."""
    if found:
        failure = pytest.fail.Exception("\n\n".join(sentences), pytrace=False)
        failure.report = _native.merge(found)  # type: ignore[attr-defined]
        failure.made_earlier = late  # type: ignore[attr-defined]
        raise failure


def _shorten_in_summary(report: pytest.TestReport, call: pytest.CallInfo[None]) -> None:
    """Shorten a leak trace to one line in pytest's short summary.

    On CI services the summary repeats whole messages, and the trace is already in the failure.
    """
    failure = call.excinfo and call.excinfo.value
    found = getattr(failure, "report", None)
    crash = getattr(report.longrepr, "reprcrash", None)
    if isinstance(found, CycleReport) and found.leaks and crash is not None:
        others = len(found.leaks) - 1
        whose = "of earlier tests: " if getattr(failure, "made_earlier", False) else ""
        more = f" (and {others} more)" if others else ""
        crash.message = f"{whose}{found.leaks[0]}{more}"


def _meant(argument: str) -> str:
    """The end of a sentence about an argument that the marker does not have."""
    return "; did you mean 'ignore'?" if argument == "allow" else did_you_mean(argument, ARGUMENTS)


def _tears_down(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """True if teardown may release objects that the test function itself did not hold.

    Otherwise nothing new can be found, and a check is slow in a process with many imports.
    """
    plain = isinstance(item, pytest.Function) and item.cls is None and not item.fixturenames
    return not plain or nextitem is None or nextitem.parent is not item.parent


def _module(item: pytest.Item | None) -> pytest.File | None:
    nodes = () if item is None else item.listchain()
    return next((node for node in nodes if isinstance(node, pytest.File)), None)


def _forget_last_exception() -> None:
    """Release the exception of the last failed test and what its frames hold.

    pytest keeps it for debuggers until the next test is called. Released only then, it would look
    like a leak of that test.
    """
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        if hasattr(sys, name):
            delattr(sys, name)
