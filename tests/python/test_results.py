"""Results for CI services."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cyclescope
from cyclescope import CycleReport, to_github_annotations, to_sarif

HERE = Path(__file__).parent


class Node:
    def __init__(self) -> None:
        self.array = np.zeros(2**20, np.uint8)
        self.me = self


LINE = next(
    number
    for number, text in enumerate(Path(__file__).read_text(encoding="utf-8").splitlines(), 1)
    if text.strip() == "self.me = self"
)


@pytest.fixture
def report() -> CycleReport:
    gc.collect()
    Node()
    return cyclescope.find_tensor_cycles(devices="any")


def moved(report: CycleReport, location: dict[str, Any] | None) -> CycleReport:
    """The report as if all of its leak were at another place."""
    model = json.loads(report.to_json())
    for leak in model["leaks"]:
        for part in (*leak["cuts"], *leak["cycle"], *leak["graph"]["nodes"]):
            part["location"] = location
        leak["source"] = None
    return CycleReport.from_json(json.dumps(model))


def sarif_of(report: CycleReport | None, base: Path = HERE) -> dict[str, Any]:
    log: dict[str, Any] = json.loads(to_sarif(report, base=base))
    return log


def test_sarif_has_what_code_scanning_needs(report: CycleReport) -> None:
    log = sarif_of(report)
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    (result,) = run["results"]
    rule = driver["rules"][result["ruleIndex"]]
    assert rule["id"] == result["ruleId"] == "refers-to-itself"
    assert rule["shortDescription"]["text"]
    assert rule["help"]["markdown"].startswith("# ")
    assert "Node.me → Node" in result["message"]["text"]
    assert result["partialFingerprints"] == {"cyclescopeSignature/v1": report.leaks[0].signature}
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "test_results.py", "uriBaseId": "SRCROOT"}
    assert place["region"] == {"startLine": LINE}
    assert run["originalUriBaseIds"]["SRCROOT"]["uri"] == f"{HERE.as_uri()}/"


def test_nothing_found_is_an_empty_run() -> None:
    assert sarif_of(None)["runs"][0]["results"] == []


@pytest.mark.parametrize(
    ("location", "place"),
    [
        ({"file": "a b/ä.py", "line": 3}, {"uri": "a%20b/%C3%A4.py", "uriBaseId": "SRCROOT"}),
        ({"file": "/elsewhere/a.py", "line": 3}, {"uri": "file:///elsewhere/a.py"}),
        ({"file": "../a.py", "line": 3}, {"uri": (HERE.parent / "a.py").as_uri()}),
        ({"file": "C:a.py", "line": 0}, {"uri": "C%3Aa.py", "uriBaseId": "SRCROOT"}),
    ],
)
def test_paths_become_uris(
    report: CycleReport, location: dict[str, Any], place: dict[str, str]
) -> None:
    (result,) = sarif_of(moved(report, location))["runs"][0]["results"]
    physical = result["locations"][0]["physicalLocation"]
    assert physical["artifactLocation"] == place
    assert physical.get("region") == ({"startLine": 3} if location["line"] else None)


def test_a_root_that_is_a_link_has_the_same_files(report: CycleReport, tmp_path: Path) -> None:
    link = tmp_path / "workspace"
    link.symlink_to(HERE)
    found = moved(report, {"file": str(HERE / "a.py"), "line": 3})
    (result,) = sarif_of(found, link)["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": "a.py", "uriBaseId": "SRCROOT"}


def test_the_root_folder_is_a_root(report: CycleReport) -> None:
    found = moved(report, {"file": "/program/a.py", "line": 3})
    (run,) = sarif_of(found, Path("/"))["runs"]
    place = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": "program/a.py", "uriBaseId": "SRCROOT"}
    assert run["originalUriBaseIds"]["SRCROOT"]["uri"] == "file:///"


def test_a_leak_without_a_place_is_a_result_all_the_same(report: CycleReport) -> None:
    (result,) = sarif_of(moved(report, None))["runs"][0]["results"]
    assert "locations" not in result
    assert result["message"]["text"]
    (line,) = to_github_annotations(moved(report, None), base=HERE)
    assert line.startswith("::warning title=")


def test_annotations_are_one_line_each_and_escaped(report: CycleReport) -> None:
    (line,) = to_github_annotations(report, base=HERE)
    assert line.startswith(f"::warning file=test_results.py,line={LINE},title=")
    assert "Node.me → Node" in line
    hostile = moved(report, {"file": "a,b:c%\n::error::x.py", "line": 3})
    (line,) = to_github_annotations(hostile, base=HERE)
    assert line.startswith("::warning file=a%2Cb%3Ac%25%0A%3A%3Aerror%3A%3Ax.py,line=3,")
    assert "\n" not in line
    (line,) = to_github_annotations(report, base=HERE, known=[report.leaks[0].signature])
    assert line.startswith("::notice ")


def test_the_root_is_the_workflows(report: CycleReport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(HERE.parents[1]))
    (line,) = to_github_annotations(report)
    assert line.startswith(f"::warning file=tests/python/test_results.py,line={LINE},")
    monkeypatch.delenv("GITHUB_WORKSPACE")
    monkeypatch.chdir(HERE)
    (line,) = to_github_annotations(report)
    assert line.startswith(f"::warning file=test_results.py,line={LINE},")


def test_annotations_of_nothing_are_none() -> None:
    assert cyclescope.to_github_annotations(None) == []
    with pytest.raises(TypeError, match="known must be a collection of signatures, not 'abc'"):
        cyclescope.to_github_annotations(None, known="abc")
