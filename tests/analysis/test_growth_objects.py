"""Objects that are no tensors and become more: every leak named, every look-alike silent."""

from __future__ import annotations

import gc
import json
import logging
import os
import re
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

import cyclescope
from support import growing_objects as growing
from support import random_growth

STEPS = 300


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    gc.collect()
    yield
    gc.collect()


def watch(name: str, steps: int = STEPS) -> tuple[list[cyclescope.Growth], cyclescope.LeakMonitor]:
    """What is told of a program with the default settings, however busy the machine is."""
    told: list[cyclescope.Growth] = []
    with cyclescope.watch_growth(max_share=float("inf")) as monitor:
        getattr(growing, name)(steps, lambda: told.extend(monitor.step()))
    return told, monitor


COUNTED = ("waiting_threads", "open_files")
"""Counted by the operating system, and only where it says so in ``/proc``."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [each.__name__ for each in growing.LEAKS])
def test_a_leak_is_told_with_its_owner(name: str) -> None:
    if name in COUNTED and not Path("/proc/self/fd").exists():
        assert watch(name)[0] == []
        return
    pattern, owner, kind = growing.LEAKS[getattr(growing, name)]
    told, monitor = watch(name, growing.STEPS.get(name, STEPS))
    assert [each.pattern for each in told] == [pattern], monitor.to_text()
    assert owner in told[0].owner
    assert kind in told[0].example
    assert told[0].tensors == 0
    assert told[0].objects >= 64
    assert told == monitor.found
    assert f"; {told[0].objects:,} " in monitor.headline


def test_no_code_of_a_metaclass_runs() -> None:
    asked: list[str] = []

    class Meta(type):
        def __getattribute__(cls, name: str) -> object:
            asked.append(name)
            raise RuntimeError(name)

    class Keeper(metaclass=Meta):
        events: list[growing.Event]

    keeper = object.__new__(Keeper)
    keeper.events = []
    asked.clear()
    with cyclescope.watch_growth(max_share=float("inf")) as monitor:
        for step in range(growing.STEPS["events_in_list"]):
            keeper.events += [growing.event(step) for _ in range(growing.EACH)]
            monitor.step()
    assert [each.owner for each in monitor.found if "keeper" in each.owner]
    assert asked == []


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [each.__name__ for each in growing.LOOK_ALIKES])
def test_what_only_looks_like_a_leak_is_not_told(name: str) -> None:
    told, monitor = watch(name, 400)
    assert told == [], monitor.to_text()


def test_the_figures_are_those_of_the_objects() -> None:
    kept: list[tuple[int, list[bytes]]] = []
    with cyclescope.LeakMonitor(every=1, max_share=float("inf")) as monitor:
        while not monitor.found and len(kept) < 40_000:
            kept.extend((step, [b"%d" % step * 100]) for step in range(1000, 1200))
            monitor.step()
    (told,) = monitor.found
    entry = kept[-1]
    each = sum(map(sys.getsizeof, (entry, entry[1], entry[1][0])))
    assert told.bytes == pytest.approx(told.objects * each, rel=0.1)
    assert told.objects <= 1.1 * len(kept)
    assert told.bytes_per_step == pytest.approx(200 * each, rel=0.2)


def test_it_is_rendered_and_withdrawn(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.WARNING, "cyclescope")
    trainer = growing.Trainer()
    with cyclescope.LeakMonitor(every=1, max_share=float("inf")) as monitor:
        for step in range(40):
            trainer.events.extend(growing.event(step) for _ in range(10 * growing.EACH))
            monitor.step()
        (told,) = monitor.found
        page = monitor.to_html()
        assert "objects-accumulate" in page
        assert "growing_objects.Event" in page
        assert "Trainer.events grows by" in page
        assert "resident memory" in page
        report = json.loads(monitor.to_json())
        (found,) = report["found"]
        assert found["objects"] == told.objects
        counts = [sample[1] for sample in found["history"]]
        assert counts == sorted(counts)
        assert counts[-1] - counts[0] >= told.objects
        assert report["counters"][-1]["threads"] >= threading.active_count()
        assert str(told) in monitor.to_text()
        assert f"{told.objects:,} objects such as" in str(told)
        trainer.events.clear()
        monitor.step()
        assert monitor.found == []
        assert "has released most of" in caplog.records[-1].getMessage()
        assert "has released most of" in monitor.to_text()


@pytest.mark.parametrize("kind", ["objects", "strings"])
def test_what_stops_is_withdrawn(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "cyclescope")
    trainer = growing.Trainer()
    with cyclescope.LeakMonitor(every=1, max_share=float("inf")) as monitor:
        for step in range(160):
            if step < 40 and kind == "objects":
                trainer.events.extend(growing.event(step) for _ in range(10 * growing.EACH))
            if step < 40 and kind == "strings":
                trainer.lines.extend(f"{step} {at}" * 20 for at in range(10 * growing.EACH))
            if step == 39:
                (told,) = monitor.found
            monitor.step()
    assert monitor.found == []
    words = f"has stopped growing since it was reported at step {told.step}"
    assert words in caplog.records[-1].getMessage()
    assert words in monitor.to_text()
    assert words in monitor.to_html()
    assert len(json.loads(monitor.to_json())["stopped"]) == 1


def test_nothing_of_the_program_is_kept() -> None:
    """What is followed is followed by address."""
    trainer = growing.Trainer()
    with cyclescope.LeakMonitor(every=1, max_share=float("inf")) as monitor:
        for step in range(40):
            trainer.events.extend(growing.event(step) for _ in range(10 * growing.EACH))
            monitor.step()
        assert monitor.found
        seen = [weakref.ref(event) for event in trainer.events]
        trainer.events.clear()
        assert not any(event() for event in seen)


OF_ONE_TYPE = (47, 65)
"""Lists in lists in a list: some of a type hold others, so an owner is not as far from each."""

SEEDS = sorted({*range(int(os.environ.get("TEST_CASES", "2"))), *OF_ONE_TYPE})


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", SEEDS)
def test_of_several_owners_those_that_grow_are_told(seed: int) -> None:
    """Owners of the same types, of which some only grow, at random."""
    run = random_growth.Run(seed)
    with cyclescope.watch_growth(max_share=float("inf")) as monitor:
        for step in range(400):
            run.step(step)
            monitor.step()
    told = {re.findall(r"\.(owner_\d)|$", each.owner)[0] for each in monitor.found}
    assert told == run.leaking, monitor.to_text()
