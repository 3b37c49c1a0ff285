"""The pytest plugin tells the leaks of each test, and fails the tests that leak."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from cyclescope import CycleReport
from support.pytest_runs import LEAKY, run, suite

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.usefixtures("few_plugins")


def test_pytest_finds_it_by_its_entry_point() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    _, _, table = text.partition("[project.entry-points.pytest11]\n")
    name, _, module = table.partition("\n")[0].partition(" = ")
    assert name == "cyclescope"
    assert hasattr(importlib.import_module(module.strip('"')), "pytest_addoption")


def test_it_is_silent_until_asked(pytester: pytest.Pytester) -> None:
    suite(pytester)
    result = run(pytester)
    result.assert_outcomes(passed=5, failed=1)
    result.stdout.no_fnmatch_line("*cycle*")
    assert not (pytester.path / ".pytest_cache" / "d" / "cyclescope").exists()


def test_report_tells_and_fails_nothing(pytester: pytest.Pytester) -> None:
    suite(pytester)
    result = run(pytester, "--tensor-cycles=report")
    result.assert_outcomes(passed=5, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*= tensor cycles =*",
            "* 3.0 MiB held by 3 similar reference cycles*Node.me*",
            "    test_suite.py::test_leaks[[]1]",
            "    test_suite.py::test_leaks[[]2]",
            "    test_suite.py::test_fixture_leaks",
            "* 2.0 MiB held by 2 similar reference cycles*Other.me*",
            "    test_suite.py::test_leaks_another",
            "    test_suite.py::test_fails_by_itself",
            "2 distinct leaks in 5 tests",
        ]
    )


def test_error_fails_with_the_trace_and_the_page(pytester: pytest.Pytester) -> None:
    suite(pytester)
    result = run(pytester, "--tensor-cycles=error")
    result.assert_outcomes(passed=2, failed=4, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*ERROR at teardown of test_fixture_leaks*",
            "*_ test_leaks[[]1] _*",
            "tensors were kept alive by reference cycles",
            "LEAK 1 of 1 *1.0 MiB*",
            "*~~~ cut here",
            "Page: *.html",
            "*_ test_fails_by_itself _*",
            "*assert node is None",
            "*Captured tensor cycles call*",
            "*= tensor cycles =*",
        ]
    )
    pages = [Path(line[len("Page: ") :]) for line in result.outlines if line.startswith("Page: ")]
    assert len(pages) == 4
    for page in pages:
        assert page.parent == pytester.path / ".pytest_cache" / "d" / "cyclescope"
        assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_the_page_of_a_leak_of_several_tests_is_of_all(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import numpy
        class Node:
            def __init__(self, size):
                self.me, self.array = self, numpy.zeros(size, dtype=numpy.uint8)
        def test_large(): Node(3 << 20)
        def test_small(): Node(1000)
        """
    )
    result = run(pytester, "--tensor-cycles=error", "--tensor-cycles-devices=any")
    pages = {line for line in result.outlines if line.startswith("Page: ")}
    (page,) = (Path(line.removeprefix("Page: ")).read_text(encoding="utf-8") for line in pages)
    assert "3.0 MiB" in page
    assert "2 similar" in page or "2 leaks" in page or "seen 2 times" in page.lower(), page[:3000]


def test_it_is_written_at_once_and_in_the_end(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import cyclescope._pytest.check as check
        write = check.write_whole
        def write_whole(path, text):
            print("\\nWROTE", path)
            write(path, text)
        check.write_whole = write_whole
        """
    )
    pytester.makepyfile(
        """
        import numpy, pytest
        class Node:
            def __init__(self):
                self.me, self.array = self, numpy.zeros(1 << 20)
        @pytest.mark.parametrize("number", range(4))
        def test_leaks(number): Node()
        """
    )
    result = run(pytester, "--tensor-cycles=error", "--tensor-cycles-devices=any", "-s")
    result.assert_outcomes(failed=4)
    written = [line for line in result.outlines if line.startswith("WROTE")]
    assert len(written) == 2, written


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
@pytest.mark.parametrize("service", ["true", None], ids=["CI", "no CI"])
def test_the_short_summary_has_a_line_for_each_test(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    workers: tuple[str, ...],
    service: str | None,
) -> None:
    """On CI services pytest repeats there the whole message of a failure."""
    for name in ("CI", "BUILD_NUMBER"):
        monkeypatch.delenv(name, raising=False)
    if service is not None:
        monkeypatch.setenv("CI", service)
    monkeypatch.setenv("COLUMNS", "120")
    suite(
        pytester,
        LEAKY
        + """
def test_leaks():
    Node(), Other()

def test_asks(tensor_cycles):
    Node()
    tensor_cycles.check()
""",
    )
    result = run(pytester, *workers, "-rfE", "--tensor-cycles=error")
    result.assert_outcomes(failed=2)
    text = result.stdout.str()
    assert text.count("LEAK 1 of 2") == 1
    assert text.count("LEAK 1 of 1") == 1
    begin = next(i for i, line in enumerate(result.outlines) if "short test summary" in line)
    *lines, end = result.outlines[begin + 1 : begin + 4]
    asks, leaks = sorted(lines)
    assert asks.startswith("FAILED test_suite.py::test_asks - 1.0 MiB held by a reference cycle")
    assert leaks.startswith("FAILED test_suite.py::test_leaks - 1.0 MiB held by a reference cycle")
    if service is not None:
        assert leaks.endswith(" (and 1 more)")
    assert "2 failed" in end


def test_a_leak_is_counted_in_each_test_and_described_once(pytester: pytest.Pytester) -> None:
    suite(
        pytester,
        LEAKY
        + """
@pytest.mark.parametrize("number", range(20))
def test_leaks(number):
    Node()
""",
    )
    result = run(pytester, "--tensor-cycles=report", "--tensor-cycles-json=all.json")
    result.assert_outcomes(passed=20)
    result.stdout.fnmatch_lines(
        ["*20.0 MiB held by 20 similar reference cycles*", "*and 15 more tests"]
    )
    (leak,) = CycleReport.from_json((pytester.path / "all.json").read_text(encoding="utf-8")).leaks
    assert leak.count == 20


def test_what_one_test_leaks_is_not_blamed_on_the_next(pytester: pytest.Pytester) -> None:
    suite(
        pytester,
        LEAKY
        + """
Node()  # while the module is imported

def test_fails():
    node = Node()
    error = None
    try:
        raise ValueError(node)
    except ValueError as caught:
        error = caught
    assert 0

def test_innocent():
    pass
""",
    )
    result = run(pytester, "--tensor-cycles=error", "-v")
    result.stdout.fnmatch_lines(["*test_innocent PASSED*"])
    result.assert_outcomes(passed=1, failed=1)


def test_x_stops_at_the_first_leak_and_lf_runs_it_again(pytester: pytest.Pytester) -> None:
    suite(pytester)
    run(pytester, "--tensor-cycles=error", "-x").assert_outcomes(passed=1, failed=1)
    result = run(pytester, "--tensor-cycles=error", "--lf", "-v")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*test_leaks[[]1] FAILED*"])


def test_under_xdist_the_workers_reports_are_one(pytester: pytest.Pytester) -> None:
    suite(pytester)
    arguments = ("--tensor-cycles=error", "--tensor-cycles-json=all.json")
    result = run(pytester, "-n", "2", *arguments)
    result.assert_outcomes(passed=2, failed=4, errors=1)
    result.stdout.fnmatch_lines(["2 distinct leaks in 5 tests"])
    spread = CycleReport.from_json((pytester.path / "all.json").read_text(encoding="utf-8"))
    run(pytester, *arguments)
    alone = CycleReport.from_json((pytester.path / "all.json").read_text(encoding="utf-8"))
    seen = [(leak.signature, leak.count, leak.objects, leak.bytes_held) for leak in alone.leaks]
    assert [(row[1], row[3]) for row in seen] == [(3, 3 * 2**20), (2, 2 * 2**20)]
    assert seen == [
        (leak.signature, leak.count, leak.objects, leak.bytes_held) for leak in spread.leaks
    ]


def test_async_tests(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_PLUGINS", "pytest_asyncio.plugin")
    suite(
        pytester,
        LEAKY
        + """
import asyncio

@pytest.mark.asyncio
async def test_clean():
    await asyncio.sleep(0)

@pytest.mark.asyncio
async def test_leaks():
    await asyncio.sleep(0)
    Node()
""",
    )
    run(pytester, "--tensor-cycles=error", "-v").assert_outcomes(passed=1, failed=1)


def test_unittest_and_expected_failures_and_skips(pytester: pytest.Pytester) -> None:
    suite(
        pytester,
        LEAKY
        + """
import unittest

class Cases(unittest.TestCase):
    def test_clean(self): pass
    def test_leaks(self): Node()
    def test_fails(self): Node(); self.fail("its own failure")

@pytest.mark.xfail(strict=True)
def test_known_to_leak(): Node()

def test_skips(): Node(); pytest.skip("no GPU")
""",
    )
    result = run(pytester, "--tensor-cycles=error")
    result.assert_outcomes(passed=1, failed=3, skipped=1, errors=2)
    result.stdout.fnmatch_lines(["*its own failure*"])
