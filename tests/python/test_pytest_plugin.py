"""The pytest plugin, in real runs of pytest in processes of their own."""

from __future__ import annotations

import importlib
import json
import xml.etree.ElementTree
from pathlib import Path

import pytest

from cyclescope import CycleReport
from support.nodes import SOURCE

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.usefixtures("few_plugins")

# As a module, so that these tests are about this package whatever else is installed.
PLUGIN = ("-p", "no:cyclescope", "-p", "cyclescope.pytest_plugin")

LEAKY = f"""
import numpy, pytest
{SOURCE}
class Other(Node):
    pass
"""

CLOSURE = """
import numpy

class Keeper:
    pass

def make(which):
    keeper = Keeper()
    keeper.array = numpy.ones(1000)
    if which == 1:
        keeper.call = lambda: keeper
    elif which == 2:
        keeper.call = lambda: keeper
    else:
        keeper.call = lambda: keeper

"""

SUITE = (
    LEAKY
    + """
@pytest.fixture
def node():
    return Node()

def test_clean():
    pass

@pytest.mark.parametrize("number", [1, 2])
def test_leaks(number):
    Node()

def test_fixture_leaks(node):
    pass

def test_leaks_another():
    Other()

def test_fails_by_itself(node):
    Other()
    assert node is None
"""
)


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess(*PLUGIN, *arguments)


def suite(pytester: pytest.Pytester, source: str = SUITE) -> Path:
    return pytester.makepyfile(test_suite=source)


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


def test_off_means_off_for_marked_tests_too(pytester: pytest.Pytester) -> None:
    suite(pytester, LEAKY + "@pytest.mark.no_tensor_cycles\ndef test_leaks():\n    Node()\n")
    run(pytester, "--tensor-cycles=off").assert_outcomes(passed=1)
    run(pytester).assert_outcomes(failed=1)
    run(pytester, "--tensor-cycles=report").assert_outcomes(failed=1)


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


def test_the_marker_says_devices_and_what_is_allowed(pytester: pytest.Pytester) -> None:
    suite(
        pytester,
        LEAKY
        + """
@pytest.mark.no_tensor_cycles(devices="cuda")
def test_gpus_only():
    Node()

@pytest.mark.no_tensor_cycles(ignore=["refers-to-itself"])
def test_allowed():
    Node()

@pytest.mark.no_tensor_cycles(ignore=["two-nodes"])
class TestGroup:
    def test_not_allowed(self):
        Node()

    @pytest.mark.no_tensor_cycles(ignore=["refers-to-itself"])
    def test_allowed(self):
        Node()
""",
    )
    result = run(pytester, "--strict-markers")
    result.assert_outcomes(passed=3, failed=1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("'cuda'", "no_tensor_cycles takes devices=... and ignore=[[]...[]], not 'cuda'"),
        ("device='cuda'", "*not device; did you mean 'devices'?"),
        ("allow=['torch']", "*not allow; did you mean 'ignore'?"),
        ("devices='gpus'", '*"gpus" is not a device*'),
        ("ignore='torch'", "*such as [[]'torch'[]]*"),
    ],
)
def test_a_marker_that_is_wrong_says_so(
    pytester: pytest.Pytester, arguments: str, sentence: str
) -> None:
    suite(
        pytester, f"import pytest\n@pytest.mark.no_tensor_cycles({arguments})\ndef test(): pass\n"
    )
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{sentence}"])


def test_a_misspelt_name_to_ignore_is_among_the_warnings(pytester: pytest.Pytester) -> None:
    suite(pytester, "def test(): pass")
    result = run(pytester, "--tensor-cycles-ignore=closure-capture-owner")
    result.assert_outcomes(passed=1, warnings=1)
    said = "*ignore names 'closure-capture-owner', *; did you mean 'closure-captures-owner'[?]"
    result.stdout.fnmatch_lines([said])


def test_the_fixture_collects_and_inspects(pytester: pytest.Pytester) -> None:
    suite(
        pytester,
        LEAKY
        + """
from cyclescope import TensorCycleError

def test_inspects(tensor_cycles):
    assert not tensor_cycles.collect().leaks
    tensor_cycles.check()
    Node()
    (leak,) = tensor_cycles.collect().leaks
    assert leak.bytes_held == 2**20
    Node()
    with pytest.raises(TensorCycleError):
        tensor_cycles.check()
    tensor_cycles.check()

def test_leaks_later(tensor_cycles):
    tensor_cycles.check()
    Node()
""",
    )
    run(pytester).assert_outcomes(passed=2)
    # What was inspected is not held against the test, and all else is.
    run(pytester, "--tensor-cycles=error").assert_outcomes(passed=1, failed=1)


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


def test_the_configuration_sets_what_the_options_set(pytester: pytest.Pytester) -> None:
    suite(pytester)
    pytester.makeini(
        """
        [pytest]
        tensor_cycles = error
        tensor_cycles_ignore =
            refers-to-itself
        tensor_cycles_report_dir = pages
        """
    )
    run(pytester).assert_outcomes(passed=5, failed=1)
    pytester.makeini("[pytest]\ntensor_cycles = error\ntensor_cycles_report_dir = pages\n")
    run(pytester).assert_outcomes(passed=2, failed=4, errors=1)
    assert sorted(path.suffix for path in (pytester.path / "pages").iterdir()) == [".html"] * 3
    run(pytester, "--tensor-cycles=off").assert_outcomes(passed=5, failed=1)
    run(pytester, "--tensor-cycles-devices=cuda").assert_outcomes(passed=5, failed=1)


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_who_looks_at_gpus_where_there_are_none_is_told(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: tuple[str, ...]
) -> None:
    suite(pytester, LEAKY + "def test_leaks():\n    Node()\n")
    arguments = ("--tensor-cycles=error", "--tensor-cycles-devices=cuda:0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    result = run(pytester, *workers, *arguments)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["1 test could not be checked: only GPU memory was requested, *devices=any*"]
    )
    suite(
        pytester,
        LEAKY
        + """
@pytest.mark.no_tensor_cycles(devices="cuda")
def test_leaks():
    Node()

def test_is_not_looked_at():
    pass
""",
    )
    result = run(pytester, *workers)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["1 test could not be checked: *devices='any' in the marker."])


def test_settings_of_the_project_hold_here_too(pytester: pytest.Pytester) -> None:
    suite(pytester)
    pytester.makepyprojecttoml("[tool.cyclescope]\nignore = ['refers-to-itself']\n")
    run(pytester, "--tensor-cycles=error").assert_outcomes(passed=5, failed=1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--tensor-cycles=errors"], "*invalid choice: 'errors'*"),
        (["--tensor-cycles-devices=gpus"], '*"gpus" is not a device*'),
        (["--tensor-cycles-baseline=none.json"], "*no baseline file *none.json; create one*"),
        (["--tensor-cycles-update-baseline"], "*needs a file*"),
        (["--tensor-cycles-baseline=test_suite.py"], "*test_suite.py is not a baseline*"),
        (["-o", "tensor_cycles=errors"], "*tensor_cycles is 'errors'; it can be off*"),
    ],
)
def test_what_is_set_wrongly_is_named(
    pytester: pytest.Pytester, arguments: list[str], sentence: str
) -> None:
    suite(pytester)
    result = run(pytester, *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([sentence])


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_baseline_lets_old_leaks_pass_and_new_ones_fail(
    pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    old = LEAKY + "def test_old():\n    Node()\n"
    suite(pytester, old)
    arguments = (*workers, "--tensor-cycles=error", "--tensor-cycles-baseline=ci/known.json")
    result = run(pytester, *arguments, "--tensor-cycles-update-baseline")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["baseline: added 1 leak to *known.json"])
    baseline = json.loads((pytester.path / "ci" / "known.json").read_text(encoding="utf-8"))
    assert list(baseline["leaks"].values()) == ["Node.me → Node"]

    result = run(pytester, *arguments)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["* (in the baseline)"])

    suite(pytester, old + "\ndef test_new():\n    Node()\n    Other()\n")
    result = run(pytester, *arguments)
    result.assert_outcomes(passed=1, failed=1)
    text = result.stdout.str()
    failure = text[text.index("_ test_new _") : text.index("= tensor cycles =")]
    assert "Other.me" in failure
    assert "Node.me" not in failure

    suite(pytester, LEAKY + "def test_mended():\n    pass\n")
    result = run(pytester, *arguments)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["baseline: 1 of 1 leaks did not occur in this run; remove those that are fixed*"]
    )


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_leak_of_the_baseline_whose_lines_have_moved(
    pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    """It may be a new one, so it fails; but it is said, and an update replaces the old entry."""
    test = CLOSURE + "def test_old():\n    make(1)\n"
    file = pytester.path / "known.json"
    options = (*workers, "--tensor-cycles=error", "--tensor-cycles-baseline=known.json")
    update = (*options, "--tensor-cycles-update-baseline")
    suite(pytester, test)
    run(pytester, *update).stdout.fnmatch_lines(["baseline: added 1 leak to *known.json"])
    before = json.loads(file.read_text(encoding="utf-8"))
    assert before["outlines"].keys() == before["leaks"].keys()

    suite(pytester, "# A line.\n" + test)
    result = run(pytester, *options)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["baseline: 1 leak may be listed with earlier line numbers: *"])
    run(pytester, *update).stdout.fnmatch_lines(["baseline: added 0 leaks to *known.json"])
    after = json.loads(file.read_text(encoding="utf-8"))
    assert len(after["leaks"]) == 1
    assert after["leaks"].keys() != before["leaks"].keys()
    assert set(after["outlines"].values()) == set(before["outlines"].values())
    run(pytester, *options).assert_outcomes(passed=1)

    suite(pytester, "# A line.\n" + test + "\ndef test_new():\n    make(2)\n")
    result = run(pytester, *options)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.no_fnmatch_line("baseline: *")


def test_results_for_ci_services(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = suite(pytester).read_text(encoding="utf-8").splitlines()
    line = 1 + next(number for number, text in enumerate(source) if "self.me" in text)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    result = run(
        pytester,
        "--tensor-cycles=error",
        "--tensor-cycles-sarif=out/leaks.sarif",
        "--junit-xml=junit.xml",
    )
    result.stdout.fnmatch_lines(
        [f"::warning file=test_suite.py,line={line},title=*::*Node.me*"],
    )
    log = json.loads((pytester.path / "out" / "leaks.sarif").read_text(encoding="utf-8"))
    (results,) = [run["results"] for run in log["runs"]]
    assert len(results) == 2
    place = results[0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "test_suite.py", "uriBaseId": "SRCROOT"}
    properties = {
        case.get("name"): [p.get("value", "") for p in case.iter("property")]
        for case in xml.etree.ElementTree.parse(pytester.path / "junit.xml").iter("testcase")
    }
    assert properties["test_clean"] == []
    (value,) = properties["test_leaks[1]"]
    assert "Node.me → Node" in value
    assert results[0]["partialFingerprints"]["cyclescopeSignature/v1"] in value
    assert len(properties["test_fixture_leaks"]) == 1


@pytest.mark.parametrize("file", ["sarif", "json", "baseline"])
def test_who_asks_for_results_is_checked(pytester: pytest.Pytester, file: str) -> None:
    suite(pytester, LEAKY + "def test_leaks():\n    Node()\n")
    (pytester.path / "given").write_text('{"schema": 1, "leaks": {}}')
    result = run(pytester, f"--tensor-cycles-{file}=given")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*1 distinct leak in 1 test*"])
    result = run(pytester, f"--tensor-cycles-{file}=given", "--tensor-cycles=off")
    assert "distinct leak" not in result.stdout.str()


@pytest.mark.parametrize("mode", ["report", "error"])
def test_a_folder_that_cannot_be_made_is_told(pytester: pytest.Pytester, mode: str) -> None:
    suite(pytester, LEAKY + "def test_leaks():\n    Node()\n")
    (pytester.path / "taken").write_text("")
    result = run(pytester, f"--tensor-cycles={mode}", "--tensor-cycles-report-dir=taken/pages")
    result.assert_outcomes(**({"failed": 1} if mode == "error" else {"passed": 1}))
    result.stdout.fnmatch_lines(["*HTML report not written: *taken*"])
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()


def test_a_run_without_leaks_writes_empty_results(pytester: pytest.Pytester) -> None:
    suite(pytester, "def test_clean():\n    pass\n")
    result = run(
        pytester,
        "--tensor-cycles=error",
        "--tensor-cycles-sarif=a.sarif",
        "--tensor-cycles-json=a.json",
    )
    result.assert_outcomes(passed=1)
    assert json.loads((pytester.path / "a.sarif").read_text())["runs"][0]["results"] == []
    assert CycleReport.from_json((pytester.path / "a.json").read_text()).leaks == []


GIVEN = {
    "": "error",
    "-devices": "cpu",
    "-scope": "whole",
    "-ignore": "two-nodes",
    "-baseline": "known.json",
    "-update-baseline": "true",
    "-report-dir": "pages",
    "-json": "a.json",
    "-sarif": "a.sarif",
}


RESULTS = {"pages", "a.json", "a.sarif", "known.json"}


def written(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} & RESULTS


@pytest.mark.parametrize("configured", [False, True], ids=["option", "configuration"])
@pytest.mark.parametrize("name", ["-devices", "-ignore", "-report-dir", "-baseline"])
def test_an_option_is_no_reason_to_look_green(
    pytester: pytest.Pytester, name: str, configured: bool
) -> None:
    suite(pytester, LEAKY + "def test_leaks():\n    Node()\n")
    (pytester.path / "known.json").write_text('{"schema": 1, "leaks": {}}')
    if configured:
        pytester.makeini(f"[pytest]\ntensor_cycles{name.replace('-', '_')} = {GIVEN[name]}\n")
        result = run(pytester)
    else:
        result = run(pytester, f"--tensor-cycles{name}={GIVEN[name]}")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*1 distinct leak in 1 test*"])


def test_a_list_in_the_configuration(pytester: pytest.Pytester) -> None:
    suite(pytester, LEAKY + "def test_leaks():\n    Node()\n")
    pytester.makepyprojecttoml('[tool.pytest.ini_options]\ntensor_cycles_devices = ["cpu"]\n')
    run(pytester).stdout.fnmatch_lines(["*1 distinct leak in 1 test*"])
    pytester.makepyprojecttoml('[tool.pytest.ini_options]\ntensor_cycles_scope = ["whole"]\n')
    result = run(pytester)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*tensor_cycles_scope is *whole*; it must be a string*"])


def test_every_option_has_a_name_in_the_configuration(pytester: pytest.Pytester) -> None:
    help_text = run(pytester, "--help").stdout.str()
    options = {line.split("=")[0].split()[0] for line in help_text.splitlines() if "  --" in line}
    assert {f"--tensor-cycles{name}" for name in GIVEN} == {
        option for option in options if option.startswith("--tensor-cycles")
    }
    settings = [f"tensor_cycles{name.replace('-', '_')}" for name in GIVEN]
    for setting in settings:
        assert f"  {setting} (" in help_text

    lines = [f"{setting} = {GIVEN[name]}" for setting, name in zip(settings, GIVEN, strict=True)]
    pytester.makeini("\n".join(["[pytest]", *lines]))
    suite(pytester, LEAKY + "def test_leaks():\n    Node(), Other()\n")
    result = run(pytester, "--strict-config", "--tensor-cycles-ignore=closure-captures-owner")
    # With a baseline that is updated, none fails.
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*2 distinct leaks in 1 test*"])
    assert written(pytester.path) == RESULTS
    assert "Other.me" in (pytester.path / "known.json").read_text()
    result = run(pytester, "--tensor-cycles-ignore=refers-to-itself")
    result.assert_outcomes(passed=1)
    assert CycleReport.from_json((pytester.path / "a.json").read_text()).leaks == []


def test_a_configured_result_is_not_written_unchecked(pytester: pytest.Pytester) -> None:
    suite(pytester, LEAKY + "def test_leaks():\n    Node()\n")
    names = ["-json", "-sarif", "-update-baseline", "-baseline"]
    lines = [f"tensor_cycles{name.replace('-', '_')} = {GIVEN[name]}" for name in names]
    pytester.makeini("\n".join(["[pytest]", *lines]))
    off = run(pytester, "--tensor-cycles=off")
    off.assert_outcomes(passed=1)
    assert written(pytester.path) == set()
    off.stdout.fnmatch_lines(["*a.json not written: --tensor-cycles=off checks no test"])


def test_a_baseline_that_cannot_be_written_is_told(pytester: pytest.Pytester) -> None:
    takes_its_place = "import pathlib\n\ndef test_last():\n    pathlib.Path('taken').touch()\n"
    suite(pytester, LEAKY + "def test_leaks():\n    Node()\n" + takes_its_place)
    baseline = "--tensor-cycles-baseline=taken/known.json"
    result = run(pytester, baseline, "--tensor-cycles-update-baseline")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["baseline not written: *taken*"])
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()
