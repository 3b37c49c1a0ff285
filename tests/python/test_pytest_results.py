"""The baseline, the pages and the results for CI services that the pytest plugin writes."""

from __future__ import annotations

import json
import xml.etree.ElementTree

import pytest

from cyclescope import CycleReport
from support.pytest_runs import LEAKY, run, suite

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.usefixtures("few_plugins")


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
        ["baseline: 1 of 1 listed leak did not occur in this run; remove those that are fixed*"]
    )


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
    replaced = "baseline: added 0 leaks to *known.json, replaced 1 whose lines have moved"
    run(pytester, *update).stdout.fnmatch_lines([replaced])
    after = json.loads(file.read_text(encoding="utf-8"))
    assert len(after["leaks"]) == 1
    assert after["leaks"].keys() != before["leaks"].keys()
    assert set(after["outlines"].values()) == set(before["outlines"].values())
    run(pytester, *options).assert_outcomes(passed=1)

    suite(pytester, "# A line.\n" + test + "\ndef test_new():\n    make(2)\n")
    result = run(pytester, *options)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.no_fnmatch_line("baseline: *")


def test_a_baseline_that_cannot_be_written_is_told(pytester: pytest.Pytester) -> None:
    takes_its_place = "import pathlib\n\ndef test_last():\n    pathlib.Path('taken').touch()\n"
    suite(pytester, LEAKY + "def test_leaks():\n    Node()\n" + takes_its_place)
    baseline = "--tensor-cycles-baseline=taken/known.json"
    result = run(pytester, baseline, "--tensor-cycles-update-baseline")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["baseline not written: *taken*"])
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()


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


@pytest.mark.parametrize("mode", ["report", "error"])
def test_a_folder_that_cannot_be_made_is_told(pytester: pytest.Pytester, mode: str) -> None:
    suite(pytester, LEAKY + "def test_leaks():\n    Node()\n")
    (pytester.path / "taken").write_text("")
    result = run(pytester, f"--tensor-cycles={mode}", "--tensor-cycles-report-dir=taken/pages")
    result.assert_outcomes(**({"failed": 1} if mode == "error" else {"passed": 1}))
    result.stdout.fnmatch_lines(["*HTML report not written: *taken*"])
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()
