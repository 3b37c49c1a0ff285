"""Checks each test for leaks."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator
from typing import Any

import pytest

from cyclescope import _native
from cyclescope._devices import blindness, device_names
from cyclescope._forbid import Recorder
from cyclescope._imported import imported
from cyclescope._native import CycleReport
from cyclescope._pytest.check import CHECK, SECTION, Check, Owed, complete_pages, shorten
from cyclescope._pytest.ending import OUTPUT, Ending, Found, release_instances
from cyclescope._pytest.options import Choices
from cyclescope._pytest.own import without_own
from cyclescope._pytest.series import Alike, LateLeak, Reach, Series, each_late
from cyclescope._selection import ignored_names
from cyclescope._settings import settings
from cyclescope._suggest import did_you_mean

NAME = "cyclescope-checker"
"""Of the plugin, in pytest."""

ATTRIBUTE = "tensor_cycles"
"""Where a test's report carries the leaks, as JSON; pytest-xdist brings it from its workers."""
LATE = "tensor_cycles_late"
"""Where it carries the leaks of earlier tests: rows of JSON and which tests made the leak."""
BLIND = "tensor_cycles_blind"
"""The attribute that holds the reason why nothing could be found, if there is one."""
UNSEEN = "tensor_cycles_unseen"
"""It is there if there were collections during the test that no watch has seen."""
CHECKED = "tensor_cycles_checked"
"""It is there if the test function was called, and leaks could be found."""

ARGUMENTS = ("devices", "ignore")
"""Of the marker ``no_tensor_cycles``."""


class Checker:
    """Records each test from before fixture set-up until after teardown.

    Leaks are checked when the test function returns, and again after teardown, because cycles that
    fixtures hold become garbage only then. Tests that are checked alike form a series, in which a
    check looks only at what the test made; so there is a further check when a module ends, at what
    its tests made, and when the series does, at all.
    """

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._told: set[str] = set()
        self._series: Series | None = None
        self._recorder: Recorder | None = None
        """Of the tests in a row whose checks look at the whole heap."""
        self._late: list[LateLeak] = []
        """What the recorder has found after the last check of the test before."""
        self._check: Check | None = None
        """Of the current test."""
        self._last: Check | None = None
        """Of the last test that has ended."""
        self._checked: list[str] = []
        self.ending = Ending()

    def _begin(self, item: pytest.Item, alike: Alike) -> None:
        """Start to record the leaks of a test."""
        blind = blindness(list(alike.devices))
        of: Recorder | Series | None = None
        if not alike.whole:
            self._take_from_recorder()
            self._stop_recorder()
            if self._series is None or self._series.alike != alike:
                self._stop_series()
                self._series = Series(alike)
            if self._series.begin(item.nodeid, _module(item)):
                of = self._series
        if of is None:
            self._stop_series()
            of = self._record(alike)
        self._check = Check(of, alike, blind=blind)
        self._checked.append(item.nodeid)
        # Other kinds of items have no fixtures.
        self._check.is_idle = isinstance(item, pytest.Function)
        item.stash[CHECK] = self._check

    def _stop_series(self) -> None:
        if self._series is not None:
            self._series.stop()
            self._series = None

    def _record(self, alike: Alike) -> Recorder:
        """The recorder of a test; that of the test before if it looks for the same."""
        self._take_from_recorder()
        recorder = self._recorder
        if recorder is None or not recorder.looks_for(alike.devices, alike.ignore):
            self._stop_recorder()
            recorder = self._recorder = Recorder(alike.devices, alike.ignore)
        return recorder

    def _take_from_recorder(self, among: int = 1) -> None:
        """What was dropped since the last check, such as by a thread that a test has left.

        Args:
            among: How many of the last tests are named as those that may have made it.
        """
        if self._recorder is None:
            return
        if self._last is not None and self._last.raised:
            # pytest held it until now.
            self._recorder.discard()
        else:
            own = without_own(self._recorder.take())
            tests = list(dict.fromkeys(self._checked[-among:]))
            self._late += each_late(own, tests, certain=False)

    def _stop_recorder(self) -> None:
        if self._recorder is not None:
            self._recorder.stop()
            self._recorder = None

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
            _refuse_lone_mixin(item)
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
            if (check := item.stash.get(CHECK, None)) is not None and not check.is_idle:
                self._look(item, check, Reach.TEST)
            raise
        if wrong is not None:
            # Without a traceback, which would show this plugin.
            raise pytest.fail.Exception(str(wrong), pytrace=False)
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(self) -> None:
        if self._check is not None:
            self._check.is_idle = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        check = item.stash.get(CHECK, None)
        if check is not None:
            check.is_idle = False
        try:
            return (yield)
        finally:
            if check is not None:
                self._look(item, check, Reach.TEST)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, Any, Any]:
        if (check := item.stash.get(CHECK, None)) is not None:
            check.nextitem = nextitem
            if check.raised and not check.is_idle and not hasattr(sys, "last_value"):
                # pytest held the exception until now. What fixtures leave after this is a leak.
                check.discard()
        return (yield)

    def _check_after(self, item: pytest.Item, check: Check) -> None:
        """Check after teardown; and if a series or a module of it ends, earlier tests too."""
        others, self._late = self._late, []
        for other in others:
            self._take_late(item, check, other)
        nextitem = check.nextitem
        series = check.of if isinstance(check.of, Series) else None
        ends = series is not None and self._ends(series, nextitem)
        if ends:
            reach = Reach.HEAP
        elif series is not None and _module(item) is not _module(nextitem):
            reach = Reach.MODULE
        elif not check.is_idle and _tears_down(item, nextitem):
            reach = Reach.TEST
        else:
            return
        self._look(item, check, reach)
        if series is not None:
            for late in series.take_late():
                self._take_late(item, check, late)
        if ends and nextitem is not None:
            self._stop_series()

    def _ends(self, series: Series, nextitem: pytest.Item | None) -> bool:
        try:
            return nextitem is None or self._alike(nextitem) != series.alike
        except pytest.UsageError:
            return True

    def _look(self, item: pytest.Item, check: Check, reach: Reach) -> None:
        """Look for leaks of the test."""
        report = check.take(reach)
        if not report.leaks:
            return
        check.found = report
        for leak in report.leaks:
            item.user_properties.append((ATTRIBUTE, f"{leak.signature} {leak}"))
        new = [leak.signature for leak in report.leaks if self._is_new(leak.signature)]
        if check.fails and new and not check.failed_by_itself:
            check.owed.append(Owed(_native.select(report, new)))
        else:
            check.sections.append(str(report))

    def _take_late(self, item: pytest.Item, check: Check, late: LateLeak) -> None:
        """A leak of an earlier test fails the teardown of this one."""
        (leak,) = late.report.leaks
        item.user_properties.append((ATTRIBUTE, f"{leak.signature} {leak}; {late}"))
        check.late.append(late)
        owed = Owed(late.report, late)
        if check.fails and self._is_new(leak.signature):
            check.owed.append(owed)
        else:
            check.sections.append(str(owed))

    def _is_new(self, signature: str) -> bool:
        return self._choices.baseline is None or signature not in self._choices.baseline

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        check = item.stash.get(CHECK, None)
        if check is not None:
            if report.when == "teardown":
                self._end(item, call, check)
            check.settle(report, call, self._choices)
            self._attach(item, report, check)
        elif (blind := _blindness_of_mixin(item)) is not None:
            setattr(report, BLIND, blind)
        found = getattr(call.excinfo and call.excinfo.value, "report", None)
        if isinstance(found, CycleReport):
            shorten(report, found, late=False)
        return report

    def _end(self, item: pytest.Item, call: pytest.CallInfo[None], check: Check) -> None:
        """The last check of a test, when all hooks of other plugins that get the test have run."""
        if call.excinfo is None and isinstance(getattr(item, "funcargs", None), dict):
            # pytest keeps the fixtures' values until just after this. After an exception there are
            # further hooks, which may read them.
            item.funcargs = {}  # type: ignore[attr-defined]
        try:
            self._check_after(item, check)
        finally:
            self._check, self._last = None, check

    def _attach(self, item: pytest.Item, report: pytest.TestReport, check: Check) -> None:
        """Add to a report what was found, for people and for the summary."""
        title = f"Captured {SECTION} {report.when}"
        report.sections += [(title, section) for section in check.sections]
        check.sections.clear()
        report.user_properties = list(item.user_properties)
        if check.blind is not None:
            setattr(report, BLIND, check.blind)
        elif report.when == "call":
            setattr(report, CHECKED, True)
        if report.when == "teardown" and check.missed_collections():
            setattr(report, UNSEEN, True)
        if check.found is not None:
            setattr(report, ATTRIBUTE, self._carried(check.found))
            check.found = None
        if check.late:
            rows = [[self._carried(it.report), it.makers] for it in check.late]
            check.late.clear()
            setattr(report, LATE, rows)

    def _carried(self, report: CycleReport) -> str:
        """The report for the summary, which has each leak once: all would fill the memory."""
        carried = _native.without_details(report, self._told)
        self._told.update(leak.signature for leak in report.leaks)
        return carried.to_json()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Be the last plugin that is registered, later than all ``conftest.py``.

        So the hooks of others run inside the ones here: they see tests, fixtures and reports as
        they are without this plugin, and have let go of them before a check.
        """
        plugins = session.config.pluginmanager
        plugins.unregister(self, NAME)
        plugins.register(self, NAME)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Look once more: fixtures that an early end had left are torn down only now."""
        try:
            if self._check is not None:
                self.ending.is_missing = True
            elif self._last is not None:
                released = release_instances(session.items)
                is_early = self._last.nextitem is not None
                if released or is_early or self._recorder is not None:
                    self._look_at_the_end(self._last)
        finally:
            self._stop_series()
            self._stop_recorder()
            complete_pages(self._choices)
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[OUTPUT] = self.ending.to_json()

    def _look_at_the_end(self, last: Check) -> None:
        alike = last.alike
        if self._series is not None:
            own = self._series.take(Reach.HEAP)
            late = [*self._series.take_late(), *each_late(own, [self._checked[-1]], certain=True)]
        else:
            self._take_from_recorder(among=len(self._checked))
            late, self._late = self._late, []
        for it in late:
            (leak,) = it.report.leaks
            self.ending.found.append(
                Found(
                    report=self._carried(it.report),
                    tests=it.makers,
                    made=str(it),
                    message=Owed(it.report, it).message(self._choices),
                    fails=alike.fails and self._is_new(leak.signature),
                )
            )


def _refuse_lone_mixin(item: pytest.Item) -> None:
    """Refuse a test of a class that looks checked and is not.

    Raises:
        pytest.UsageError: If it derives from ``NoTensorCycles`` and from no ``TestCase``.
    """
    case = imported("unittest.case", "TestCase")
    cls = _class_with_mixin(item)
    if cls is not None and case not in cls.__mro__:
        name = cls.__name__
        raise pytest.UsageError(
            f"{item.nodeid}: {name} derives from NoTensorCycles but not from unittest.TestCase, so "
            f"its tests would not be checked; write class {name}(NoTensorCycles, TestCase), or "
            "mark it with @pytest.mark.no_tensor_cycles"
        )


def _class_with_mixin(item: pytest.Item) -> type | None:
    """The class of a test, if it derives from ``NoTensorCycles``."""
    mixin = imported("cyclescope._unittest", "NoTensorCycles")
    cls: type | None = getattr(item, "cls", None)
    return cls if cls is not None and mixin in cls.__mro__ else None


def _blindness_of_mixin(item: pytest.Item) -> str | None:
    """Why ``NoTensorCycles`` finds nothing in a test, whose log pytest shows only if it fails."""
    cls = _class_with_mixin(item)
    if cls is None:
        return None
    with contextlib.suppress(TypeError, ValueError):  # The test fails for this by itself.
        return blindness(settings().devices_or(getattr(cls, "tensor_cycle_devices", None)))
    return None


def _meant(argument: str) -> str:
    """The end of a sentence about an argument that the marker does not have."""
    return "; did you mean 'ignore'?" if argument == "allow" else did_you_mean(argument, ARGUMENTS)


def _tears_down(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """True if teardown may release objects that the test function itself did not hold.

    Otherwise nothing new can be found, and a check is slow in a process with many imports.
    """
    # The instance of a class stays. One of TestCase does not, which has a fixture for setUpClass.
    plain = isinstance(item, pytest.Function) and not item.fixturenames
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
