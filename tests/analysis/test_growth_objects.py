"""Objects that are no tensors and become more: every leak named, every look-alike silent."""

from __future__ import annotations

import collections
import gc
import json
import logging
import os
import re
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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


class Turn:
    """A state that leads back to the one before."""

    __slots__ = ("before", "state")

    def __init__(self, before: Turn | None) -> None:
        self.before = before
        self.state = bytes(bytearray(4096))


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
    is_of_process = told[0].pattern in ("threads-grow", "files-grow")
    least = "" if is_of_process else "at least "
    assert f"; {least}{told[0].objects:,} " in monitor.headline


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


def test_the_rate_of_a_chain_is_that_of_what_came_and_not_of_what_it_leads_back_to() -> None:
    last = Turn(None)
    for _ in range(2_000):
        last = Turn(last)
    with cyclescope.LeakMonitor(every=1, max_share=float("inf"), min_bytes=2**10) as monitor:
        for _ in range(300):
            for _ in range(20):
                last = Turn(last)
            monitor.step()
    (told,) = monitor.found
    assert told.bytes_per_step == pytest.approx(20 * sys.getsizeof(last.state), rel=0.2)
    assert re.search(r"objects \([\d.]+ [KM]iB\) in ", monitor.headline)


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
        assert told.to_text() in monitor.to_text()
        assert f"{told.objects:,} objects such as" in str(told)
        trainer.events.clear()
        monitor.step()
        assert monitor.found == []
        assert "has released most of" in caplog.records[-1].getMessage()
        assert "has released most of" in monitor.to_text()


class Meter:
    """A small object with a list."""

    def __init__(self) -> None:
        self.values = [0.0] * 40


SLOW: dict[str, Callable[[int, int], Any]] = {
    "objects": lambda step, at: Meter(),
    "strings": lambda step, at: f"{step} {at} " * 30,
    "lists": lambda step, at: [step, *range(at, at + 40)],
}
"""What leaks by some hundred bytes each."""


@pytest.mark.parametrize("kind", SLOW)
@pytest.mark.parametrize("each", [5, 10])
def test_a_slow_leak_is_told_soon_though_samples_become_rarer(kind: str, each: int) -> None:
    kept: dict[tuple[int, int], Any] | list[Any] = {} if kind == "lists" else []
    # No sample keeps to this share, so samples become rarer, as in a program of short steps.
    with cyclescope.watch_growth(every=10, max_share=1e-9) as monitor:
        for step in range(3000):
            for at in range(each):
                made = SLOW[kind](step, at)
                if isinstance(kept, dict):
                    kept[step, at] = made
                else:
                    kept.append(made)
            monitor.step()
            if monitor.found:
                break
    (told,) = monitor.found
    assert "`kept`" in told.owner
    values = kept.values() if isinstance(kept, dict) else kept
    size = sum(sys.getsizeof(it) + sys.getsizeof(getattr(it, "values", 0)) for it in values)
    assert size / monitor.steps * told.step < 3.5 * 2**20


def test_objects_that_are_not_reported_are_in_the_headline() -> None:
    kept: list[Meter] = []
    with cyclescope.watch_growth(every=1, max_share=float("inf"), min_bytes=2**30) as monitor:
        for _ in range(40):
            kept.extend(Meter() for _ in range(20))
            monitor.step()
    assert monitor.found == []
    (number,) = re.findall(
        r"; not reported: ([\d,]+) more objects of `\S*Meter` in `kept`, about", monitor.headline
    )
    assert 500 <= int(number.replace(",", "")) <= len(kept)
    assert "No growth was found" not in monitor.to_text()
    assert "No growth was found" not in monitor.to_html()


def test_the_headline_says_what_came_after_the_report() -> None:
    kept: list[Meter] = []
    with cyclescope.watch_growth(every=1, max_share=float("inf"), min_bytes=2**16) as monitor:
        for _ in range(60):
            kept.extend(Meter() for _ in range(20))
            monitor.step()
    (told,) = monitor.found
    more = 20 * (60 - told.step)
    assert f"`kept` at step {told.step} and {more:,} more of their type since" in monitor.headline


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


def test_the_keys_of_a_counter_count() -> None:
    seen: collections.Counter[str] = collections.Counter()
    with cyclescope.watch_growth(devices="any", max_share=float("inf")) as monitor:
        for number in range(150):
            seen.update(f"{number}-{item}-{'x' * 300}" for item in range(60))
            monitor.step()
    (found,) = monitor.found
    assert found.pattern == "objects-accumulate"
    assert "`seen`" in found.owner
    assert found.objects <= len(seen)
    sizes = sum(map(sys.getsizeof, list(seen)[: found.objects]))
    assert found.bytes == pytest.approx(sizes, rel=0.05)
