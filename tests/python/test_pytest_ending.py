"""What the pytest plugin finds, or says that it has not looked for, when a run ends."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from support import pytest_runs
from support.nodes import SOURCE

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.usefixtures("few_plugins")

PLUGIN = (*pytest_runs.PLUGIN, "-p", "no:cacheprovider")
LEAKY = f"""
import gc, numpy, pytest
{SOURCE}
class Other(Node): ...

@pytest.fixture(scope="module")
def of_module():
    it = Node()
    yield it
    del it
"""
EARLY = "*leaks that show only at the end of a module or of the run were not looked for."


def run(pytester: pytest.Pytester, source: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(test_a=LEAKY + source)
    return pytester.runpytest_subprocess(*PLUGIN, "--tensor-cycles=error", *arguments)


IN_SELF = """
class TestKeeps:
    def setup_method(self):
        self.node = Node()
    def test_one(self): pass
    def test_two(self): pass

class TestDrops:
    def setup_method(self):
        self.array = numpy.ones(9)
    def test_three(self): pass

def test_last(): pass
"""


@pytest.mark.parametrize("scope", ["new", "whole"])
def test_what_a_test_class_keeps_in_self_is_found_at_the_end(
    pytester: pytest.Pytester, scope: str
) -> None:
    result = run(pytester, IN_SELF, f"--tensor-cycles-scope={scope}")
    result.assert_outcomes(passed=4)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    named = "*made by *test_a.py::TestKeeps::test_one, test_a.py::TestKeeps::test_two*"
    result.stdout.fnmatch_lines(["*Node*", named, "*LEAK 1 of 1*", "The run fails, because a *"])


def test_so_do_workers_of_xdist(pytester: pytest.Pytester) -> None:
    result = run(pytester, IN_SELF, "-n", "2", "--dist=loadfile")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*TestKeeps::test_one", "The run fails, because a leak was *"])


@pytest.mark.parametrize("workers", [(), ("-n", "2", "--dist=loadfile")], ids=["alone", "xdist"])
@pytest.mark.parametrize("mode", ["error", "report"])
def test_the_junit_file_has_what_is_found_at_the_end(
    pytester: pytest.Pytester, mode: str, workers: tuple[str, ...]
) -> None:
    run(pytester, IN_SELF, f"--tensor-cycles={mode}", "--junit-xml=junit.xml", *workers)
    suite = ElementTree.parse(pytester.path / "junit.xml").getroot()[0]
    (added,) = suite.iterfind("properties/property")
    assert added.attrib["name"] == "tensor_cycles"
    assert added.attrib["value"].endswith("::test_two, and dropped after their checks")
    failures = [(case.attrib["name"], case[0].tag) for case in suite.iter("testcase") if len(case)]
    assert failures == ([("end of the run", "failure")] if mode == "error" else [])
    assert (suite.attrib["failures"], suite.attrib["errors"]) == (str(len(failures)), "0")
    assert suite.attrib["tests"] == str(4 + len(failures))


@pytest.mark.parametrize("options", ["--tensor-cycles=report", "--tensor-cycles-ignore=numpy"])
def test_a_run_without_a_leak_to_fail_for_does_not_fail(
    pytester: pytest.Pytester, options: str
) -> None:
    clean = IN_SELF.replace("Node()", "numpy.ones(9)")
    source = IN_SELF if "report" in options else clean
    result = run(pytester, source, options)
    assert result.ret == pytest.ExitCode.OK
    assert "The run fails" not in result.stdout.str()


def test_later_hooks_get_an_instance(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session):
    yield
    print([type(item.instance).__name__ for item in session.items], session.items[0].obj)
""")
    result = run(pytester, IN_SELF.replace("Node()", "1"))
    result.stdout.fnmatch_lines(["*'TestKeeps', 'TestKeeps', 'TestDrops', 'NoneType'*test_one*"])


STOPS = """
def test_one(of_module): pass
def test_two(request):
    {stop}
def test_three(of_module): pass
"""


@pytest.mark.parametrize("stop", ["request.session.shouldstop = 'enough'", "assert 0"])
def test_an_early_end_is_looked_at_too(pytester: pytest.Pytester, stop: str) -> None:
    result = run(pytester, STOPS.format(stop=stop), "-x")
    assert result.ret in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.TESTS_FAILED)
    result.stdout.fnmatch_lines(["*Node*", "    test_a.py::test_one"])
    result.stdout.no_fnmatch_line(EARLY)


@pytest.mark.parametrize("stop", ["raise KeyboardInterrupt", "pytest.exit('bye')"])
def test_what_an_interrupt_leaves_unlooked_is_said(pytester: pytest.Pytester, stop: str) -> None:
    result = run(pytester, STOPS.format(stop=stop))
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines([EARLY])


def test_collections_that_were_not_seen_are_said(pytester: pytest.Pytester) -> None:
    source = """
def test_before(): gc.collect()
def test_clears():
    gc.callbacks.clear()
    Node()
    gc.collect()
def test_after():
    Node()
    gc.collect()
def test_restores():
    saved = gc.callbacks[:]
    gc.callbacks.clear()
    gc.collect()
    gc.callbacks[:] = saved
def test_harmless(): gc.callbacks.clear()
"""
    result = run(pytester, source, "--tensor-cycles-sarif=leaks.sarif")
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(
        ["2 tests changed gc.callbacks, *: test_a.py::test_clears, test_a.py::test_restores. *"]
    )
    alone = run(pytester, source, "--tensor-cycles-sarif=leaks.sarif", "-k", "clears or before")
    assert alone.ret == pytest.ExitCode.OK
    alone.stdout.fnmatch_lines(["*leaks.sarif not written: not all garbage collections were seen"])


def test_what_a_test_freezes_is_found(pytester: pytest.Pytester) -> None:
    source = """
def test_first(): pass
def test_freezes():
    Node()
    gc.freeze()
def test_between(): pass
def test_freezes_again():
    gc.unfreeze()
    Other()
    gc.freeze()
def test_freezes_no_garbage(): gc.freeze()
"""
    result = run(pytester, source)
    result.assert_outcomes(passed=5, errors=1)
    named = "*made by one of these tests or before them: *"
    result.stdout.fnmatch_lines([named + "test_freezes", named + "test_freezes_again"])
