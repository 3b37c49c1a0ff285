"""The pytest plugin finds in what tests make all that it finds in the whole heap."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from cyclescope import _native
from support import pytest_runs
from support.random_suites import Suite, make_suite

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.usefixtures("few_plugins")

PLUGIN = (*pytest_runs.PLUGIN, "-p", "no:cacheprovider")

RECORD = """
import json
from cyclescope import CycleReport

rows = []

def add(carried, tests):
    for leak in CycleReport.from_json(carried).leaks:
        rows.append([leak.summary, leak.count, tests])

def pytest_runtest_logreport(report):
    if (carried := getattr(report, "tensor_cycles", None)) is not None:
        add(carried, [report.nodeid])
    for carried, tests in getattr(report, "tensor_cycles_late", ()):
        add(carried, ["late", *tests])

def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput"):
        with open("rows.json", "w") as file:
            json.dump(rows, file)
"""

needs_lists = pytest.mark.skipif(
    _native.begin_epoch() is None,
    reason="this interpreter's collector keeps no lists of generations: each check is whole",
)


def found(
    pytester: pytest.Pytester, suite: Suite, *arguments: str
) -> dict[str, list[tuple[int, list[str]]]]:
    """By leak, how often it was found each time, and in which tests."""
    for name, text in suite.files.items():
        (pytester.path / name).write_text(text, encoding="utf-8")
    (pytester.path / "conftest.py").write_text(RECORD, encoding="utf-8")
    result = pytester.runpytest_subprocess(*PLUGIN, "-q", "--tensor-cycles=report", *arguments)
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()
    rows: list[Any] = json.loads((pytester.path / "rows.json").read_text(encoding="utf-8"))
    leaks: dict[str, list[tuple[int, list[str]]]] = {}
    for summary, count, tests in rows:
        (name,) = {name for name in suite.leaks if name in summary.replace(".", " ").split()}
        leaks.setdefault(name, []).append((count, tests))
    return leaks


def check(suite: Suite, whole: Any, new: Any) -> None:
    """The same leaks as often, and each said of who made it."""
    assert new.keys() == whole.keys()
    for name, times in new.items():
        truth = suite.leaks[name]
        assert sum(count for count, _ in times) == sum(count for count, _ in whole[name])
        for _, (first, *others) in times:
            if first != "late":
                assert first in (truth.maker, truth.dropper)
            elif others[0].startswith("made "):
                # Of which nothing is known: not a name, or not all of them.
                assert truth.maker is None or " before" in others[0]
            else:
                assert others == [truth.maker]


@needs_lists
@pytest.mark.parametrize("seed", range(int(os.environ.get("TEST_CASES", "3"))))
def test_nothing_is_missed(pytester: pytest.Pytester, seed: int) -> None:
    suite = make_suite(seed)
    whole = found(pytester, suite, "--tensor-cycles-scope=whole")
    check(suite, whole, found(pytester, suite))


@needs_lists
def test_nor_by_the_workers_of_xdist(pytester: pytest.Pytester) -> None:
    suite = make_suite(7)
    whole = found(pytester, suite, "-n", "2", "--dist=loadfile", "--tensor-cycles-scope=whole")
    check(suite, whole, found(pytester, suite, "-n", "2", "--dist=loadfile"))


LATER = """
import gc, numpy, pytest

class Node:
    def __init__(self):
        self.me = self
        self.array = numpy.zeros(1000)

kept = []

def test_makes():
    kept.append(Node())

def test_between():
    {between}

def test_drops():
    kept.clear()

def test_last():
    pass
"""


@needs_lists
@pytest.mark.parametrize("between", ["pass", "gc.collect()"])
def test_the_end_of_the_module_names_the_test_that_made_it(
    pytester: pytest.Pytester, between: str
) -> None:
    pytester.makepyfile(test_a=LATER.format(between=between), test_b="def test_other(): pass")
    result = pytester.runpytest_subprocess(*PLUGIN, "--tensor-cycles=error", "-v")
    result.assert_outcomes(passed=5, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*ERROR at teardown of test_last*",
            "tensors were kept alive by reference cycles, made by test_a.py::test_makes, and *",
            "    test_a.py::test_makes",
            "1 distinct leak in 1 test",
        ]
    )
    result.stdout.fnmatch_lines(["ERROR test_a.py::test_last - from earlier tests: *"])
    whole = pytester.runpytest_subprocess(
        *PLUGIN, "--tensor-cycles=error", "--tensor-cycles-scope=whole", "-v"
    )
    whole.stdout.fnmatch_lines(["*test_drops FAILED*"])


@needs_lists
def test_what_another_module_drops_is_found_at_the_end(pytester: pytest.Pytester) -> None:
    """The end of a module looks only at what its own tests made."""
    pytester.makepyfile(
        test_a=LATER.format(between="pass").replace("clear", "copy"),
        test_b="import test_a\ndef test_clears(): test_a.kept.clear()\ndef test_other(): pass",
        test_c="def test_innocent(): pass",
    )
    result = pytester.runpytest_subprocess(*PLUGIN, "--tensor-cycles=error", "-v")
    result.assert_outcomes(passed=7, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*ERROR at teardown of test_innocent*",
            "tensors were kept alive by reference cycles, made by test_a.py::test_makes, and *",
        ]
    )


DICTS = """
import gc, numpy, pytest

class Node:
    pass

kept = Node()
kept.array = numpy.zeros(1000)

def test_makes():
    global kept
    kept = Node()
    kept.array = numpy.zeros(1000)

def test_changes():
    gc.collect()
    {change}

def test_drops():
    global kept
    kept = None
"""


@needs_lists
@pytest.mark.parametrize("change", ["kept.me = kept", "kept.me = kept; vars(kept)"])
def test_a_younger_dictionary_of_an_object_makes_it_no_younger(
    pytester: pytest.Pytester, change: str
) -> None:
    """CPython tracks or makes it only when it is needed."""
    pytester.makepyfile(test_a=DICTS.format(change=change))
    result = pytester.runpytest_subprocess(*PLUGIN, "--tensor-cycles=error")
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(["*made by test_a.py::test_makes, and *"])


@needs_lists
def test_what_is_not_known_is_not_said(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_a=LATER.format(between="gc.freeze(); [[]]; gc.unfreeze()"))
    result = pytester.runpytest_subprocess(*PLUGIN, "--tensor-cycles=error")
    result.assert_outcomes(passed=4, errors=1)
    result.stdout.fnmatch_lines(
        ["*made by one of these tests or before them: test_a.py::test_makes, *test_between*"]
    )


THAWED = """
import gc, numpy, pytest

class Node:
    def __init__(self):
        self.me = self
        self.array = numpy.zeros(1000)

{before}
def test_makes():
    node = Node()
    gc.freeze()
    del node

def test_between():
    pass

def test_innocent():
    gc.unfreeze(){after}

def test_other():
    pass
"""


@needs_lists
def test_whoever_brings_back_frozen_garbage_is_not_accused(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_a=THAWED.format(before="", after=""))
    result = pytester.runpytest_subprocess(*PLUGIN, "--tensor-cycles=error")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*1 distinct leak in 1 test", "FAILED test_a.py::test_makes *"])


@needs_lists
def test_nor_is_the_first_test(pytester: pytest.Pytester) -> None:
    before = "node = Node()\ngc.freeze()\ndel node\ndef test_first():\n    gc.unfreeze()\n"
    pytester.makepyfile(test_a=THAWED.format(before=before, after=""))
    result = pytester.runpytest_subprocess(*PLUGIN, "--tensor-cycles=error", "-k", "first or other")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*made by one of these tests or before them: *test_first"])


@needs_lists
def test_exceptions_after_objects_are_brought_back(pytester: pytest.Pytester) -> None:
    """Whose garbage has no known order either."""
    makes_nothing = "import gc, numpy\ngc.freeze()\n"
    after = "\n    array = numpy.ones(10)\n    pytest.skip('no GPU')"
    pytester.makepyfile(test_a=THAWED.format(before=makes_nothing, after=after))
    result = pytester.runpytest_subprocess(
        *PLUGIN, "--tensor-cycles=error", "-k", "between or innocent or other"
    )
    result.assert_outcomes(passed=2, skipped=1)


@needs_lists
def test_tests_that_collect_are_checked_themselves(pytester: pytest.Pytester) -> None:
    source = """
import gc, numpy

class Node:
    def __init__(self):
        self.me = self
        self.array = numpy.zeros(1000)

def test_old():
    node = Node()
    gc.collect()
    del node

def test_freed():
    node = Node()
    gc.collect()
    del node
    gc.collect()

def test_clean():
    gc.collect()
"""
    pytester.makepyfile(test_a=source)
    result = pytester.runpytest_subprocess(*PLUGIN, "--tensor-cycles=error", "-v")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*test_old FAILED*", "*test_freed FAILED*", "*test_clean PASSED*"])


DROPPED = """
import numpy

class Node:
    def __init__(self):
        self.me = self
        self.array = numpy.zeros(1000)

kept = []

def test_leaves():
    kept.append(Node())

def test_fine(): ...

def test_last(): ...
"""


@pytest.mark.parametrize("test", ["test_leaves", "test_last"])
def test_looks_at_the_whole_heap_find_what_is_dropped_between_tests(
    pytester: pytest.Pytester, test: str
) -> None:
    """As by a thread that a test has started, while the checks take their time."""
    pytester.makepyfile(test_a=DROPPED)
    pytester.makeconftest(
        f"""
import sys

def pytest_runtest_logfinish(nodeid):
    if nodeid.endswith({test!r}):
        sys.modules["test_a"].kept.clear()
"""
    )
    options = ("--tensor-cycles=error", "--tensor-cycles-scope=whole")
    result = pytester.runpytest_subprocess(*PLUGIN, *options)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["1 distinct leak in 1 test"])
