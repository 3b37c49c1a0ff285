"""The JUnit file, which pytest writes before the last look."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import pytest

from cyclescope._native import CycleReport
from cyclescope._pytest.ending import Found

TEST_CASE = "cyclescope::end of the run"
"""Stands for no test: none can fail any more."""


def add(config: pytest.Config, found: list[Found], name: str) -> None:
    """Add what was found after the last test to the JUnit file of this run, if it has one.

    Each leak is a property of the whole suite. Those that the run fails for are a test case that
    fails, which is what services look at.
    """
    # Nothing public writes the file once more. Where pytest has other names for it, the file stays
    # as it is; and if it cannot be written, pytest has said so before.
    with contextlib.suppress(Exception):
        xml: Any = config.stash.get(sys.modules["_pytest.junitxml"].xml_key, None)
        if xml is None:
            return
        for each in found:
            (leak,) = CycleReport.from_json(each.report).leaks
            xml.add_global_property(name, f"{leak.signature} {leak}; {each.made}")
        if failing := [each.message for each in found if each.fails]:
            place = (TEST_CASE, None, TEST_CASE)
            text = "\n\n".join(failing)
            for report in (
                pytest.TestReport(TEST_CASE, place, {}, "failed", text, "call"),
                pytest.TestReport(TEST_CASE, place, {}, "passed", None, "teardown"),
            ):
                xml.pytest_runtest_logreport(report)
        xml.pytest_sessionfinish()
