"""The pytest plugin adds the leaks, and changes nothing else of what a run says."""

from __future__ import annotations

import sys

import pytest

from cyclescope import CycleReport
from support.nodes import SOURCE
from support.pytest_runs import PLUGIN

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.usefixtures("few_plugins")

SCOPES = pytest.mark.parametrize("scope", ["new", "whole"])

LEAKY = f"""
import gc, numpy, pytest, unittest
{SOURCE}
"""


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess(*PLUGIN, "--tensor-cycles=error", *arguments)


def compared(pytester: pytest.Pytester, scope: str) -> tuple[dict[str, int], pytest.RunResult]:
    """The outcomes without a check, and the run with one."""
    without = pytester.runpytest_subprocess(*PLUGIN, "--tensor-cycles=off")
    return without.parseoutcomes(), run(pytester, f"--tensor-cycles-scope={scope}")


READS = """
import pytest

@pytest.hookimpl({kind}=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome{result}
    report.sections.append(("page", str(item.funcargs["page"])))
    with open("seen", "a") as file:
        print(report.when, report.outcome, item.funcargs["page"], file=file)
    return report
"""


@pytest.mark.parametrize("folder", [".", "sub"])
@pytest.mark.parametrize(
    ("kind", "result"), [("wrapper", ""), ("hookwrapper", ".get_result()")], ids=["new", "old"]
)
def test_hooks_of_a_conftest_read_fixtures_at_teardown(
    pytester: pytest.Pytester, kind: str, result: str, folder: str
) -> None:
    where = pytester.path / folder
    where.mkdir(exist_ok=True)
    (where / "conftest.py").write_text(READS.format(kind=kind, result=result))
    (where / "test_a.py").write_text(
        LEAKY
        + """
@pytest.fixture
def page():
    node = Node()
    node.__class__.__str__ = lambda self: "the page"
    return node

def test_a(page):
    pass
"""
    )
    # What is held by nothing but the fixture's value leaks all the same.
    run(pytester).assert_outcomes(passed=1, errors=1)
    seen = (pytester.path / "seen").read_text().splitlines()
    assert seen == [f"{when} passed the page" for when in ("setup", "call", "teardown")]


@SCOPES
def test_a_leak_is_an_error_apart_from_the_outcome(pytester: pytest.Pytester, scope: str) -> None:
    """No outcome hides it, and it hides none."""
    pytester.makepyfile(
        LEAKY
        + """
@pytest.fixture
def leaks_first():
    Node()
    pytest.skip("not here")

@pytest.fixture
def leaks_last():
    yield
    Node()

@pytest.mark.xfail(strict=True)
def test_xpass_strict():
    Node()

@pytest.mark.xfail
def test_xpass():
    Node()

@pytest.mark.xfail
def test_xfail():
    Node()
    assert 0

@pytest.mark.xfail
def test_xfail_and_its_fixture(leaks_last):
    assert 0

def test_xfail_within():
    Node()
    pytest.xfail("known")

def test_skip_within():
    Node()
    pytest.skip("no GPU")

def test_skip_of_a_fixture(leaks_first):
    pass

def test_skip_and_a_fixture(leaks_last):
    pytest.skip("no GPU")

class Cases(unittest.TestCase):
    @unittest.expectedFailure
    def test_expected(self):
        Node()
        self.fail()

    def test_skip(self):
        Node()
        self.skipTest("no GPU")
"""
    )
    without, result = compared(pytester, scope)
    assert without == {"failed": 1, "xpassed": 1, "xfailed": 4, "skipped": 4}
    assert result.parseoutcomes() == without | {"errors": 10}
    result.stdout.fnmatch_lines(["*[[]XPASS(strict)[]]*", "1 distinct leak in 10 tests"])


@SCOPES
def test_innocent_tests_stay_so(pytester: pytest.Pytester, scope: str) -> None:
    """The exceptions of these tests are in cycles, which pytest has made."""
    pytester.makepyfile(
        LEAKY
        + """
class Cases(unittest.TestCase):
    def setUp(self):
        self.array = numpy.ones(10)

    @unittest.expectedFailure
    def test_expected(self):
        array = numpy.ones(10)
        self.fail("not implemented yet")

    @unittest.expectedFailure
    def test_unexpected(self):
        array = numpy.ones(10)

    @unittest.expectedFailure
    def test_expected_and_collects(self):
        array = numpy.ones(10)
        self.addCleanup(gc.collect)
        self.fail("not implemented yet")

    def test_sub(self):
        for number in range(3):
            with self.subTest(number=number):
                array = numpy.ones(10)
                self.assertEqual(number, 1)

    def test_skips(self):
        array = numpy.ones(10)
        self.skipTest("no GPU")

class Others(unittest.TestCase):
    def test_other(self):
        self.array = numpy.ones(10)

@pytest.fixture
def array():
    return numpy.ones(10)

@pytest.mark.xfail
def test_xfail(array):
    assert array is None

def test_xfail_within(array):
    pytest.xfail("known")

def test_skip(array):
    pytest.skip("no GPU")

def test_other():
    pass
"""
    )
    without, result = compared(pytester, scope)
    assert result.parseoutcomes() == without
    # From 3.12 on, unittest itself leaves cycles of a failed `subTest`.
    told = [line for line in result.outlines if "reference cycle" in line]
    assert all(line.endswith("; in the standard library") for line in told), told
    assert not told or sys.version_info >= (3, 12)


def test_an_unexpected_success_that_leaks_accuses_no_other(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        LEAKY
        + """
class Cases(unittest.TestCase):
    def setUp(self):
        self.array = numpy.ones(10)

    @unittest.expectedFailure
    def test_unexpected(self):
        Node()

class Others(unittest.TestCase):
    def test_other(self):
        pass
"""
    )
    result = run(pytester)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["Unexpected success", "*1 distinct leak in 1 test*"])


@SCOPES
def test_each_leak_of_a_test_is_told(pytester: pytest.Pytester, scope: str) -> None:
    pytester.makepyfile(
        LEAKY
        + """
class Big(Node):
    pass

@pytest.fixture
def big():
    yield
    Big()

def test_leaks_twice(big):
    Node()

def test_fails_and_leaks(big):
    assert 0
"""
    )
    result = run(pytester, f"--tensor-cycles-scope={scope}", "--tensor-cycles-json=all.json")
    # A test that fails by itself does not fail again. What it leaks is listed.
    result.assert_outcomes(failed=2, errors=1)
    report = CycleReport.from_json((pytester.path / "all.json").read_text(encoding="utf-8"))
    assert sorted((leak.summary, leak.count) for leak in report.leaks) == [
        ("Big.me → Big", 2),
        ("Node.me → Node", 1),
    ]
    result.stdout.fnmatch_lines(["2 distinct leaks in 2 tests"])


def test_hooks_for_exceptions_read_fixtures_too(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
def pytest_exception_interact(node, call, report):
    print("interacts with", node.name, node.funcargs["page"])
"""
    )
    pytester.makepyfile(
        LEAKY
        + """
@pytest.fixture
def page():
    yield "the page"
    raise ValueError

def test_leaks(page):
    Node()
"""
    )
    result = run(pytester, "-s")
    result.assert_outcomes(failed=1, errors=1)
    result.stdout.fnmatch_lines(["*interacts with test_leaks the page"])


RAISES = {
    "a fixture that skips": """
@pytest.fixture
def model():
    model = numpy.zeros(1000)
    pytest.skip("no GPU")

def test_a(model): pass
""",
    "a fixture that gets the model": """
@pytest.fixture
def model():
    return numpy.zeros(1000)

@pytest.fixture
def skips(model):
    pytest.skip("no GPU")

def test_a(skips): pass
""",
    "a fixture of the module that needs a library": """
@pytest.fixture(scope="module")
def model():
    model = numpy.zeros(1000)
    pytest.importorskip("a_library_that_is_missing")

def test_a(model): pass
def test_b(): pass
""",
    "an expected failure": """
@pytest.fixture
def model():
    model = numpy.zeros(1000)
    raise ValueError

@pytest.mark.xfail
def test_a(model): pass
def test_b(): pass
""",
    "a method of a class": """
class TestAll:
    def setup_method(self):
        self.model = numpy.zeros(1000)
        pytest.skip("no GPU")

    def test_a(self): pass
""",
    "a class of unittest": """
class TestAll(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        model = numpy.zeros(1000)
        raise unittest.SkipTest

    def test_a(self): pass
""",
    "the end of a class": """
class TestAll:
    def teardown_class(cls):
        model = numpy.zeros(1000)
        raise ValueError

    def test_a(self): pass
""",
}


@SCOPES
@pytest.mark.parametrize("name", RAISES)
def test_what_pytest_holds_for_an_exception_outside_a_test_is_no_leak(
    pytester: pytest.Pytester, name: str, scope: str
) -> None:
    pytester.makepyfile(LEAKY + RAISES[name])
    without, done = compared(pytester, scope)
    assert done.parseoutcomes() == without, done.outlines
    assert "reference cycle" not in done.stdout.str()
    # A leak beside it is one.
    pytester.makepyfile(LEAKY + RAISES[name] + "\ndef test_z(): Node()\n")
    _, done = compared(pytester, scope)
    assert "1 distinct leak in 1 test" in done.outlines, done.stdout.str()


def test_a_collection_of_the_test_itself_is_said(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(LEAKY + "\ndef test_a():\n    Node()\n    gc.collect()\n")
    done = run(pytester)
    done.assert_outcomes(failed=1)
    text = " ".join(done.stdout.str().split())
    assert "by a check without a collection" not in text, text
    assert "by a garbage collection," in text
