"""The summary at the end of a pytest run, and its files for other tools."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from cyclescope import _native
from cyclescope._devices import blindness
from cyclescope._files import reason, write_whole
from cyclescope._native import CycleReport
from cyclescope._pytest import junit
from cyclescope._pytest.checker import ATTRIBUTE, BLIND, CHECKED, LATE, UNSEEN, Checker
from cyclescope._pytest.ending import OUTPUT, Ending
from cyclescope._pytest.options import Choices
from cyclescope._system import environment

TESTS_SHOWN = 5
PAGE = "tensor-cycles.html"


class Summary:
    """Gathers the leaks of all tests, from one process or from the workers of pytest-xdist."""

    def __init__(self, choices: Choices, checker: Checker) -> None:
        self._choices = choices
        self._checker = checker
        self._reports: list[CycleReport] = []
        self._tests: dict[str, list[str]] = {}
        self._said: list[str] = []
        self._merged: CycleReport | None = None
        self._blind: dict[str, set[str]] = {}
        self._unseen: list[str] = []
        self._endings: list[Ending] = []
        self._workers = 0
        """How many of pytest-xdist have begun."""
        self._has_checked = False
        self._has_uncollected = False

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._has_uncollected |= report.failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._has_checked |= hasattr(report, CHECKED)
        if (reason := getattr(report, BLIND, None)) is not None:
            self._blind.setdefault(reason, set()).add(report.nodeid)
        if hasattr(report, UNSEEN):
            self._unseen.append(report.nodeid)
        carried = getattr(report, ATTRIBUTE, None)
        if carried is not None:
            self._add(carried, [report.nodeid])
        for late, tests in getattr(report, LATE, ()):
            self._add(late, tests)

    def _add(self, carried: str, makers: list[str]) -> None:
        found = CycleReport.from_json(carried)
        self._reports.append(found)
        for leak in found.leaks:
            tests = self._tests.setdefault(leak.signature, [])
            tests += [test for test in makers if test not in tests]

    def merged(self) -> CycleReport | None:
        """One report of all tests; None if no test leaked."""
        if self._reports:
            earlier = [] if self._merged is None else [self._merged]
            self._merged = _native.merge([*earlier, *self._reports])
            self._reports.clear()
        return self._merged

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self) -> None:
        """A worker of pytest-xdist begins."""
        self._workers += 1

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """A worker of pytest-xdist has ended."""
        carried = getattr(node, "workeroutput", {}).get(OUTPUT)
        if carried is not None:
            self._endings.append(Ending.from_json(carried))

    # Within the wrappers of others, so that the terminal knows all when it prints.
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(
        self, session: pytest.Session, exitstatus: int
    ) -> Generator[None, object, object]:
        try:
            return (yield)
        finally:
            self._finish(session, exitstatus)

    def _finish(self, session: pytest.Session, exitstatus: int) -> None:
        self._endings.append(self._checker.ending)
        found = [each for ending in self._endings for each in ending.found]
        for each in found:
            self._add(each.report, each.tests)
        if found:
            junit.add(session.config, found, ATTRIBUTE)
        late = [each for each in found if each.fails]
        if late:
            leaks = "a leak was" if len(late) == 1 else f"{len(late)} leaks were"
            self._said.append(f"The run fails, because {leaks} found after the last test.")
            _fail(session)
        report = self.merged()
        self._say_what_was_not_seen()
        if self._could_not_check_what_was_asked_for():
            self._said.append(
                "The run fails, because --tensor-cycles=error could not check all tests."
            )
            _fail(session)
        unknown = self._why_unknown(session, exitstatus) if report is None else None
        if unknown is not None:
            self._say_what_is_not_written(unknown)
            return
        is_written = self._write_results(report)
        is_updated = self._update_baseline(report)
        if not (is_written and is_updated):
            _fail(session)

    def _could_not_check_what_was_asked_for(self) -> bool:
        """True if the options of the run ask for failures that were not possible."""
        choices = self._choices
        is_asked = choices.mode == "error" and not choices.update_baseline
        return is_asked and bool(self._blind) and blindness(choices.devices) is not None

    def _why_unknown(self, session: pytest.Session, exitstatus: int) -> str | None:
        """Why nothing is known of leaks where none was found; None if there are none."""
        if self._choices.mode == "off":
            return "--tensor-cycles=off checks no test"
        if not self._has_checked:
            return "no test was checked"
        if self._has_uncollected:
            return "not all tests could be collected"
        if self._unseen:
            return "not all garbage collections were seen"
        if exitstatus in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR):
            return "the run was interrupted"
        if self._blind:
            return "not all tests could be checked"
        if session.shouldfail or session.shouldstop or self._lacks_last_look():
            return "the run ended early"
        return None

    def _say_what_is_not_written(self, why: str) -> None:
        """A file that says "no leaks", where that is not known, would be false."""
        baseline = self._choices.baseline if self._choices.update_baseline else None
        updated = None if baseline is None else baseline.file
        for file in filter(None, (self._choices.json, self._choices.sarif, updated)):
            self._said.append(f"{file} not written: {why}")

    def _say_what_was_not_seen(self) -> None:
        for why, tests in self._blind.items():
            self._said.append(
                f"{_counted(len(tests), 'test')} could not be checked: only GPU memory was "
                f"requested, but {why}. Use --tensor-cycles-devices=any, devices='any' in the "
                "marker, or tensor_cycle_devices = 'any' in the class."
            )
        if self._unseen:
            self._said.append(
                f"{_counted(len(self._unseen), 'test')} changed gc.callbacks, so garbage "
                f"collections went unseen: {_listed(self._unseen)}. Any leaks that they freed are "
                "unknown."
            )
        if self._has_checked and self._lacks_last_look():
            self._said.append(
                "The run ended early: leaks that show only at the end of a module or of the run "
                "were not looked for."
            )

    def _lacks_last_look(self) -> bool:
        # The checker of this process is there besides those of the workers.
        ended = len(self._endings) > self._workers
        return not ended or any(ending.is_missing for ending in self._endings)

    def _write_results(self, report: CycleReport | None) -> bool:
        """Write the page, and the files that were asked for. False if one of these cannot be."""
        from cyclescope._results import to_sarif

        choices = self._choices
        if report is not None:
            self._write(lambda: choices.report_dir / PAGE, report.to_html(), "HTML report")
        is_written = True
        if (json := choices.json) is not None:
            text = (report or _native.empty_report()).to_json()
            is_written &= self._write(lambda: json, text, "JSON report")
        if (sarif := choices.sarif) is not None:
            text = to_sarif(report, base=self._base())
            is_written &= self._write(lambda: sarif, text, "SARIF report")
        if not is_written:
            self._said.append("The run fails, because a requested report could not be written.")
        return is_written

    def _base(self) -> Path:
        """The source root: the workspace of the GitHub workflow, or else pytest's rootdir."""
        return Path(environment("GITHUB_WORKSPACE") or self._choices.config.rootpath)

    def _write(self, find: Callable[[], Path], text: str, what: str) -> bool:
        try:
            file = find()
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, text)
        except OSError as error:
            self._said.append(f"{what} not written: {reason(error)}")
            return False
        self._said.append(f"{what}: {file}")
        return True

    def _update_baseline(self, report: CycleReport | None) -> bool:
        """Update the baseline if asked to. False if that cannot be done."""
        baseline = self._choices.baseline
        if baseline is None:
            return True
        leaks = [] if report is None else report.leaks
        moved = baseline.moved(leaks)
        if self._choices.update_baseline:
            try:
                new, replaced = baseline.update(leaks)
                also = f", replaced {replaced} whose lines have moved" if replaced else ""
                self._said.append(
                    f"baseline: added {_counted(new, 'leak')} to {baseline.file}{also}"
                )
            except OSError as error:
                self._said.append(
                    f"baseline not written: {baseline.file}: {error.strerror or error}. The run "
                    "fails, because no test fails for a leak while the baseline is updated"
                )
                return False
        elif moved:
            pairs = ", ".join(f"{now} for {before}" for now, before in moved.items())
            self._said.append(
                f"baseline: {_counted(len(moved), 'leak')} may be listed with earlier line "
                f"numbers: {pairs}. If only lines have moved, --tensor-cycles-update-baseline "
                "replaces these entries"
            )
        unseen = [it for it in baseline.unseen(self._tests) if it not in moved.values()]
        if unseen:
            self._said.append(
                f"baseline: {len(unseen)} of {_counted(len(baseline.leaks), 'listed leak')} did "
                f"not occur in this run; remove those that are fixed from {baseline.file}: "
                f"{', '.join(unseen)}"
            )
        return True

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        report = self.merged()
        if report is None and not self._said:
            return
        terminalreporter.section("tensor cycles")
        leaks = [] if report is None else report.leaks
        baseline = self._choices.baseline
        for leak in leaks:
            known = " (in the baseline)" if baseline and leak.signature in baseline else ""
            terminalreporter.write_line(f"{leak.signature} {leak}{known}")
            tests = self._tests[leak.signature]
            for test in tests[:TESTS_SHOWN]:
                terminalreporter.write_line(f"    {test}")
            if len(tests) > TESTS_SHOWN:
                more = _counted(len(tests) - TESTS_SHOWN, "more test")
                terminalreporter.write_line(f"    and {more}")
        if leaks:
            tested = len({test for tests in self._tests.values() for test in tests})
            terminalreporter.write_line(
                f"{_counted(len(leaks), 'distinct leak')} in {_counted(tested, 'test')}"
            )
        for ending in self._endings:
            for found in ending.found:
                terminalreporter.write_line(f"\nFound at the end of the run: {found.message}\n")
        for sentence in self._said:
            terminalreporter.write_line(sentence)
        if report is not None and environment("GITHUB_ACTIONS") == "true":
            from cyclescope._results import to_github_annotations

            known_ones = set(baseline.leaks) if baseline else set()
            for line in to_github_annotations(report, base=self._base(), known=known_ones):
                terminalreporter.write_line(line)


def _fail(session: pytest.Session) -> None:
    if session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _listed(tests: list[str]) -> str:
    more = f" and {len(tests) - TESTS_SHOWN} more" if len(tests) > TESTS_SHOWN else ""
    return ", ".join(tests[:TESTS_SHOWN]) + more


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
