"""The check of one test: what it found, and what the test is to fail for."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

import pytest

from cyclescope import _native
from cyclescope._files import reason, write_whole
from cyclescope._forbid import Recorder
from cyclescope._native import CycleReport
from cyclescope._pytest.options import Choices
from cyclescope._pytest.own import without_own
from cyclescope._pytest.series import Alike, LateLeak, Reach, Series

SECTION = "tensor cycles"
KEPT = "tensors were kept alive by reference cycles"


@dataclass(frozen=True)
class Owed:
    """Leaks that a test is to fail for."""

    report: CycleReport
    late: LateLeak | None = None
    """The leak of an earlier test, if it is one."""

    def __str__(self) -> str:
        """What is shown if the test fails for another reason."""
        return str(self.report) if self.late is None else f"{self.late}\n{self.report}"

    def message(self, choices: Choices) -> str:
        """What the test fails with. Writes the page of the leak."""
        made = "" if self.late is None else f", {self.late}"
        return f"{KEPT}{made}\n\n{self.report}\n{_page(choices, self.report)}"


class Check:
    """The check of a running test."""

    def __init__(self, of: Recorder | Series, alike: Alike, *, blind: str | None) -> None:
        self.of = of
        """The recorder of this test, or the series that it belongs to."""
        self.alike = alike
        self.fails = alike.fails
        self.blind = blind
        """Why nothing can be found; None if leaks can be found."""
        self.nextitem: pytest.Item | None = None
        """Known from the teardown on."""
        self.raised = False
        """There was an exception, such as that of a skip. pytest holds it, and it has cycles."""
        self.is_idle = True
        """Nothing of the test has run, not even a fixture: it is marked as skipped."""
        self.failed_by_itself = False
        self.found: CycleReport | None = None
        """The leaks of the current phase."""
        self.late: list[LateLeak] = []
        """The leaks of earlier tests that were found after this one."""
        self.owed: list[Owed] = []
        """What the test has not failed for yet."""
        self.sections: list[str] = []
        """What the report of the current phase shows if it fails."""
        self._unseen = _native.unseen_collections()

    def take(self, reach: Reach) -> CycleReport:
        """What the test leaked since it began, or since the previous call."""
        return self.of.take(reach) if isinstance(self.of, Series) else without_own(self.of.take())

    def take_all(self) -> CycleReport:
        """The same, for sure: a look at the whole heap."""
        return self.take(Reach.HEAP)

    def missed_collections(self) -> bool:
        """True if the watch was not told of all collections, because the test changed the list."""
        return _native.unseen_collections() != self._unseen

    def discard(self) -> None:
        """Free what only the exception of the test has held. That is no leak of the test."""
        self.of.discard()

    def note_exception(self) -> None:
        """There was an exception, and not because of a leak."""
        self.raised = True
        if isinstance(self.of, Series):
            self.of.fail()

    def settle(
        self, report: pytest.TestReport, call: pytest.CallInfo[None], choices: Choices
    ) -> None:
        """Fail a report with what is owed, if that changes nothing else that it says.

        A test that is skipped, or expected to fail, keeps its outcome: the leak is an error of its
        teardown. If the test fails by itself, that is what its report says first.
        """
        is_last = report.when == "teardown"
        if call.excinfo is not None:
            self.note_exception()
        if report.failed and (is_last or call.excinfo is not None):
            self.failed_by_itself = True
            self.sections += map(str, self.owed)
            self.owed.clear()
        elif self.owed and (is_last or _has_passed(report)):
            _fail(report, self.owed, choices)
            self.owed.clear()


CHECK = pytest.StashKey[Check]()


def _has_passed(report: pytest.TestReport) -> bool:
    return report.when == "call" and report.passed and not hasattr(report, "wasxfail")


def _fail(report: pytest.TestReport, owed: list[Owed], choices: Choices) -> None:
    report.outcome = "failed"
    _show(report, "\n\n".join(it.message(choices) for it in owed))
    if hasattr(report, "wasxfail"):
        # What was expected to fail is the test. The marker does not say that it leaks.
        del report.wasxfail
    found = _native.merge([it.report for it in owed])
    shorten(report, found, late=all(it.late is not None for it in owed))


def _show(report: pytest.TestReport, message: str) -> None:
    """As pytest shows a failure. None is raised further: an exception holds frames, with cycles."""
    failure = pytest.fail.Exception(message, pytrace=False)
    try:
        raise failure
    except pytest.fail.Exception:
        report.longrepr = pytest.ExceptionInfo.from_current().getrepr(style="value")
    finally:
        failure.__traceback__ = None


def shorten(report: pytest.TestReport, found: CycleReport, *, late: bool) -> None:
    """Shorten a leak trace to one line in pytest's short summary.

    On CI services the summary repeats whole messages, and the trace is already in the failure.
    """
    crash = getattr(report.longrepr, "reprcrash", None)
    if found.leaks and crash is not None:
        others = len(found.leaks) - 1
        whose = "from earlier tests: " if late else ""
        more = f" (and {others} more)" if others else ""
        crash.message = f"{whose}{found.leaks[0]}{more}"


def _page(choices: Choices, report: CycleReport) -> str:
    """Where the page of a leak is. It is written at once; further tests are added in the end."""
    signature = report.leaks[0].signature
    earlier = choices.shown.get(signature)
    choices.shown[signature] = report if earlier is None else _native.merge([earlier, report])
    choices.outdated.add(signature)
    try:
        page = _path(choices, signature)
        if earlier is None or not page.exists():
            _write(choices, signature)
        return f"Page: {page}"
    except OSError as error:
        return f"Page not written: {reason(error)}"


def complete_pages(choices: Choices) -> None:
    """Add to the page of each leak the tests that had it too."""
    # A test has said what cannot be written.
    with contextlib.suppress(OSError):
        for signature in sorted(choices.outdated):
            _write(choices, signature)


def _write(choices: Choices, signature: str) -> None:
    write_whole(_path(choices, signature), choices.shown[signature].to_html())
    choices.outdated.discard(signature)


def _path(choices: Choices, signature: str) -> Path:
    return choices.report_dir / f"{signature}.html"
