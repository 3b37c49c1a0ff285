"""Does every fixture pass every check of the score, and would a wrong word be noticed?"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any
from unittest import SkipTest

import pytest

import common
from support import heap_by_name, scoring


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", common.names())
def test_fixture_passes(name: str) -> None:
    score = scoring.score(name, "cpu")
    if score.skipped:
        pytest.skip(f"{name} {score.skipped}")
    assert score.faults() == []
    assert score.passed() == {check for check in scoring.CHECKS if score.has(check)}


@pytest.mark.parametrize(
    ("change", "checks"),
    [
        ({"leaks": 0}, {"truth", "silent"}),
        ({"tensors": 2}, {"truth", "bytes"}),
        ({"cycle": (("Trainer", ".callbacks"), ("list", "[0]"))}, {"truth", "cycle"}),
        ({"path": (".bias",)}, {"truth", "cycle"}),
        ({"cut": ("log", "closure variable 'step'")}, {"truth", "cut"}),
        ({"cut": ("print", "closure variable 'self'")}, {"cut"}),
        ({"seen_by_saveall": False}, {"truth"}),
    ],
)
def test_a_wrong_expectation_is_noticed(
    change: dict[str, Any], checks: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fixture = common.load("closure_captures_owner")
    monkeypatch.setattr(fixture, "EXPECTED", replace(fixture.EXPECTED, **change))
    faults = scoring.score("closure_captures_owner", "cpu").faults()
    assert {check for check, _ in faults} == checks


def test_a_leak_that_is_not_reported_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = scoring.find("cpu")
    monkeypatch.setattr(scoring, "find", lambda device: nothing)
    score = scoring.score("two_nodes", "cpu")
    assert {check for check, _ in score.faults()} == {"found"}
    assert score.passed() == {"truth"}


def test_a_cut_that_does_not_free_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap_by_name, "sever", lambda owner, edge: None)
    faults = scoring.score("two_nodes", "cpu").faults()
    assert {check for check, _ in faults} == {"freed"}


@pytest.mark.parametrize("name", ["live_cycle", "parent_child"])
def test_the_program_sums_up(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["scoring.py", name])
    assert scoring.main() == 0
    told = capsys.readouterr().out
    assert "1 fixtures scored, 0 skipped" in told
    leaks = int(name == "parent_child")
    assert f"{leaks} of {leaks} leaks found" in told
    assert f"{1 - leaks} of {1 - leaks} look-alikes not reported" in told

    fixture: Any = common.load(name)
    monkeypatch.setattr(fixture, "leak", lambda device, mib: 1 / 0)
    assert scoring.main() == 1
    assert "raised  ZeroDivisionError" in capsys.readouterr().out


def test_no_fixture_scored_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(name: str) -> None:
        raise SkipTest(f"{name} needs what is not there")

    monkeypatch.setattr(common, "load", load)
    monkeypatch.setattr(sys, "argv", ["scoring.py", "two_nodes"])
    assert scoring.main() == 1
    assert "skipped (needs what is not there): two_nodes" in capsys.readouterr().out
