"""Collections in the training loop's own time."""

from __future__ import annotations

import gc
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import cyclescope
from cyclescope import StepCollector, _step, _warner
from support.marks import needs_fork
from support.nodes import SOURCE, Node
from support.processes import python


@pytest.fixture(autouse=True)
def loop_without_collections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CYCLESCOPE_REPORT_DIR", str(tmp_path))
    monkeypatch.setattr(_step, "_collector", None)
    gc.collect()
    gc.disable()
    yield
    if _step._collector is not None:
        _step._collector.stop()
    gc.enable()


def full_collections() -> int:
    return int(gc.get_stats()[2]["collections"])


def test_it_collects_in_every_so_manieth_step_and_never_else() -> None:
    before = full_collections()
    found = []
    for number in range(1, 11):
        Node()
        report = cyclescope.step(every=4, devices="any")
        if report is not None:
            found.append((number, report.step, report.since, report.bytes_held // 2**20))
    assert found == [(4, 4, 0, 4), (8, 8, 4, 4)]
    assert full_collections() == before + 2


def test_new_leaks_are_warned_of_once_and_amounts_are_told(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.INFO, logger="cyclescope")
    for _ in range(6):
        Node()
        cyclescope.step(every=2, devices="any")
    assert _step._collector is not None
    _step._collector._watch.flush()
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "2.0 MiB held by 2 similar reference cycles" in warnings[0]
    amounts = [r.getMessage() for r in caplog.records if r.levelno == logging.INFO]
    assert amounts == [
        f"step {step}: reference cycles held 2.0 MiB in the 2 steps since the last collection"
        for step in (2, 4, 6)
    ]
    assert len(list(tmp_path.glob("*.html"))) == 1


def test_what_a_finalizer_breaks_is_found_in_every_step() -> None:
    class Cleaner(Node):
        def __del__(self) -> None:
            del self.me

    for _ in range(30):
        Cleaner()
        report = cyclescope.step(every=1, devices="any")
        assert report is not None
        assert report.bytes_held == 2**20


def test_what_the_loop_collects_itself_is_counted() -> None:
    collector = StepCollector(every=3, devices="any")
    for number in range(1, 4):
        Node()
        gc.collect()
        report = collector.step()
        assert (report is not None) is (number == 3)
    collector.stop()
    assert report is not None
    assert report.bytes_held == 3 * 2**20
    assert report.bytes_aged == 0


def test_garbage_too_old_for_the_loops_collections_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    collector = StepCollector(every=4, devices="any")
    reports = []
    for _ in range(8):
        node = Node()
        gc.collect(1)  # while it is in use: it becomes as old as can be
        del node
        gc.collect(1)  # and so this does not free it
        reports.append(collector.step())
    collector.stop()
    found = [report for report in reports if report is not None]
    assert [report.bytes_aged for report in found] == [4 * 2**20] * 2
    aged = [message for message in caplog.messages if "gc.collect(1)" in message]
    assert len(aged) == 1
    assert "4.0 MiB of garbage had aged into the oldest generation" in aged[0]


def test_young_garbage_is_not_said_to_be_old() -> None:
    collector = StepCollector(every=2, devices="any")
    gc.collect(1)
    Node()
    collector.step()
    report = collector.step()
    collector.stop()
    assert report is not None
    assert (report.bytes_held, report.bytes_aged) == (2**20, 0)


def test_a_watch_that_runs_already_is_the_one_that_warns(caplog: pytest.LogCaptureFixture) -> None:
    with cyclescope.warn_tensor_cycles(devices="any") as watch:
        Node()
        assert cyclescope.step(every=1, devices="any") is not None
        assert [leak.count for leak in watch.leaks] == [1]
        assert watch.flush(60)
    assert len(caplog.messages) == 1


def test_scalars() -> None:
    Node(3)
    report = cyclescope.step(every=1, devices="any")
    assert report is not None
    assert set(report.scalars()) == {
        "cyclescope/bytes_held",
        "cyclescope/distinct_leaks",
        "cyclescope/bytes_aged",
        "cyclescope/seconds",
    }
    assert report.scalars()["cyclescope/bytes_held"] == 3 * 2**20
    assert json.dumps(report.scalars())


def test_what_is_wrong_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for every in (0, -1, True, 1.5):
        with pytest.raises(ValueError, match="every must be a positive number of steps"):
            cyclescope.step(every=every)  # type: ignore[arg-type]
    monkeypatch.setenv("CYCLESCOPE_EVERY", "17")
    collector = StepCollector()
    assert collector.every == 17
    collector.stop()


@needs_fork
def test_a_forked_child_begins_anew() -> None:
    program = f"""
import os, gc, numpy, cyclescope
gc.disable()
{SOURCE}cyclescope.step(every=2, devices="any")
child = os.fork()
if child == 0:
    Node()
    first = cyclescope.step(every=1, devices="any")
    os._exit(0 if first is not None and first.step == 1 and first.bytes_held == 2**20 else 1)
_, status = os.waitpid(child, 0)
assert status == 0, status
Node()
mine = cyclescope.step()
assert mine.step == 2 and mine.bytes_held == 2**20, mine
"""
    done = python("-c", program, timeout=60)
    assert done.returncode == 0, done.stderr


def test_it_goes_on_when_the_watch_is_stopped() -> None:
    def held() -> int:
        Node()
        report = cyclescope.step(every=1, devices="any")
        assert report is not None
        return report.bytes_held // 2**20

    with cyclescope.warn_tensor_cycles(devices="any"):
        assert held() == 1
        Node()
        gc.collect()
    # What the stopped watch has counted since is not lost.
    assert held() == 2
    assert [held() for _ in range(3)] == [1, 1, 1]
    watch = cyclescope.warn_tensor_cycles(devices="any")
    assert held() == 1
    watch.stop()
    with cyclescope.warn_tensor_cycles(devices="any"):
        assert [held() for _ in range(2)] == [1, 1]
    assert held() == 1


def test_a_collector_that_was_stopped_starts_no_watch() -> None:
    collector = StepCollector(every=1, devices="any")
    collector.stop()
    Node()
    report = collector.step()
    assert report is not None
    assert report.bytes_held == 2**20
    assert _warner.running_warner() is None
