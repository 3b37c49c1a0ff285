"""What becomes of a program whose callbacks and log handlers are at fault."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

import cyclescope
from support.nodes import SOURCE, Node
from support.processes import python

pytestmark = pytest.mark.usefixtures("collector_paused")


def leak() -> None:
    Node()
    gc.collect()


def leave_the_thread(report: cyclescope.CycleReport) -> NoReturn:
    sys.exit(3)


def interrupt(report: cyclescope.CycleReport) -> NoReturn:
    raise KeyboardInterrupt


def recurse(report: cyclescope.CycleReport) -> None:
    recurse(report)


def lie(report: cyclescope.CycleReport) -> NoReturn:
    class Lying(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

        __repr__ = __str__

    raise Lying


@pytest.mark.parametrize("wrong", [leave_the_thread, interrupt, recurse, lie])
def test_whatever_a_callback_raises_others_are_told(
    wrong: Callable[[cyclescope.CycleReport], None],
) -> None:
    told: list[cyclescope.CycleReport] = []
    with (
        cyclescope.observe_tensor_cycles(wrong, devices="any"),
        cyclescope.observe_tensor_cycles(told.append, devices="any") as watch,
    ):
        for _ in range(3):
            leak()
        assert watch.flush(240)
    assert len(told) == 3


def test_a_handler_that_blocks_does_not_stop_the_program() -> None:
    reached, go_on, let_go = threading.Event(), threading.Event(), threading.Event()

    class Blocks(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            reached.set()
            go_on.wait()
            let_go.set()

    logger = logging.getLogger("cyclescope")
    handler = Blocks()
    logger.addHandler(handler)
    try:
        with cyclescope.warn_tensor_cycles(devices="any") as watch:
            leak()
            assert reached.wait(60)
            for _ in range(50):
                leak()
            # All fifty came while the handler was at its first message.
            assert not let_go.is_set()
            assert not watch.flush(0.1)
            go_on.set()
            assert watch.flush(240)
            (tally,) = watch.leaks
    finally:
        go_on.set()
        logger.removeHandler(handler)
    assert tally.count == 51


def test_reports_that_nobody_takes_are_counted_and_not_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As many as there is room for are told later, of the others how many there were."""
    reached, go_on = threading.Event(), threading.Event()
    told: list[cyclescope.CycleReport] = []

    def callback(report: cyclescope.CycleReport) -> None:
        told.append(report)
        reached.set()
        go_on.wait()

    try:
        with cyclescope.observe_tensor_cycles(callback, devices="any") as watch:
            leak()
            assert reached.wait(60)
            for _ in range(1000):
                leak()
            assert len(told) == 1
            go_on.set()
            assert watch.flush(240)
            (tally,) = watch.leaks
    finally:
        go_on.set()
    assert tally.count == 1001
    assert 100 < len(told) < 1001
    (sentence,) = [text for text in caplog.messages if "reports were dropped" in text]
    assert f"{1001 - len(told)} reports were dropped" in sentence


def test_a_handler_that_leaks_and_collects() -> None:
    """What the telling itself leaks is told as well, and does not go round for ever."""
    records: list[str] = []

    class Leaks(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record.getMessage())
            leak()

    logger = logging.getLogger("cyclescope")
    handler = Leaks()
    logger.addHandler(handler)
    try:
        with cyclescope.warn_tensor_cycles(devices="any") as watch:
            leak()
            assert watch.flush(240)
            (tally,) = watch.leaks
    finally:
        logger.removeHandler(handler)
    assert len(records) == 1
    assert tally.count == 2


def test_a_callback_that_starts_and_stops_watches() -> None:
    def restless(report: cyclescope.CycleReport) -> None:
        with cyclescope.observe_tensor_cycles(print, devices="any"):
            pass

    with cyclescope.observe_tensor_cycles(restless, devices="any") as watch:
        for _ in range(5):
            leak()
        assert watch.flush(240)
    assert not [c for c in gc.callbacks if "cyclescope" in repr(c)]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no signal comes by itself here")
def test_who_waits_can_be_interrupted() -> None:
    """Ctrl-C, while a report that is being told takes its time."""
    done = threading.Event()
    watch = cyclescope.observe_tensor_cycles(lambda report: done.wait(), devices="any")
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        leak()
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        # Were it not interrupted, it would wait for an hour.
        with pytest.raises(KeyboardInterrupt):
            watch.flush(3600)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        done.set()
        watch.stop()


def test_no_patience_is_too_great() -> None:
    with cyclescope.observe_tensor_cycles(print, devices="any") as watch:
        assert watch.flush(1e18)
        assert watch.flush(0)
        for wrong in (-1.0, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="non-negative number of seconds"):
                watch.flush(wrong)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_callback_that_forks() -> None:
    """The child comes back from the callback as a process of its own, and must end."""
    program = f"""
import gc, os, sys, numpy, cyclescope
{SOURCE}
children = []

def fork(report):
    child = os.fork()
    if child:
        children.append(child)

watch = cyclescope.observe_tensor_cycles(fork, devices="any")
gc.disable()
Node()
gc.collect()
assert watch.flush(240)
print(os.waitpid(children[0], 0)[1])
"""
    done = python("-W", "ignore", "-c", program, timeout=60)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_a_lot_of_watches() -> None:
    told: list[int] = []

    def tell(number: int) -> Callable[[cyclescope.CycleReport], Any]:
        return lambda report: told.append(number)

    watches = [
        cyclescope.observe_tensor_cycles(tell(number), devices="any") for number in range(100)
    ]
    try:
        leak()
        assert all(watch.flush(240) for watch in watches)
    finally:
        for watch in watches:
            watch.stop()
    assert told == list(range(100))
    assert not [c for c in gc.callbacks if "cyclescope" in repr(c)]


def test_ten_thousand_watches_one_after_another() -> None:
    """Started and stopped, each leaves nothing behind: no callback, no thread, no listener."""
    from cyclescope import _teller

    def threads() -> int:
        return sum(thread.name == "cyclescope" for thread in threading.enumerate())

    for number in range(10_000):
        with cyclescope.observe_tensor_cycles(print, devices="any"):
            if number % 1000 == 0:
                gc.collect()
    assert not [c for c in gc.callbacks if "cyclescope" in repr(c)]
    assert gc.get_debug() == 0
    assert threads() <= 1
    assert not _teller._listeners
    assert not _teller._farewells
