"""Does a program under the always-on watch behave exactly as it does without?

Most tests run a program of ``support.hosts`` twice, bare and watched, and compare all that it
printed, on both streams, and how it ended.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy
import pytest

import cyclescope
from cyclescope import _native
from support import hosts
from support.nodes import Node
from support.processes import python


@dataclass(frozen=True)
class Outcome:
    returncode: int
    stdout: str
    stderr: str


def run(name: str, *options: str) -> Outcome:
    done = python(
        # Forking with threads is deprecated, and the watch has a thread.
        *["-W", "ignore::DeprecationWarning", "-m", "support.hosts", name, *options],
        timeout=240,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    return Outcome(done.returncode, done.stdout, comparable(done.stderr))


def side_by_side(name: str, *options: str) -> tuple[Outcome, Outcome]:
    """Runs a program bare and watched, both at once."""
    with ThreadPoolExecutor(2) as pool:
        bare = pool.submit(run, name, *options)
        watched = pool.submit(run, name, "--watch", *options)
    return bare.result(), watched.result()


def comparable(stderr: str) -> str:
    """What does not differ from run to run: no addresses, times, and sizes of generations.

    Nor what a watch says of a program that takes it out.
    """
    stderr = re.sub(r"^[0-9]+ garbage collections? w(as|ere) not seen,.*\n", "", stderr, flags=re.M)
    stderr = re.sub(r"0x[0-9a-f]+|, [0-9.]+s elapsed", "", stderr)
    return re.sub(r"^gc: (objects in each|collecting) generation.*\n", "", stderr, flags=re.M)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("name", "ages"),
    [(name, ()) for name in hosts.PROGRAMS]
    + [(name, ("--young",)) for name in hosts.PROGRAMS if name not in hosts.ONCE],
)
def test_a_program_cannot_tell_that_it_is_watched(name: str, ages: tuple[str, ...]) -> None:
    if not hasattr(os, "fork") and "fork" in hosts.PROGRAMS[name].__code__.co_names:
        pytest.skip("this system has no fork")
    bare, watched = side_by_side(name, *ages)
    # CPython 3.10 itself, with no watch, crashes at the end of this program in 3 of 100 runs.
    tries = 5 if name == "daemon_threads_at_exit" and sys.version_info < (3, 11) else 1
    while tries > 1 and -signal.SIGSEGV in (bare.returncode, watched.returncode):
        bare, watched = side_by_side(name, *ages)
        tries -= 1
    assert watched == bare


def test_every_kind_of_program_is_there() -> None:
    """The comparison is worth nothing where both runs do nothing."""
    for name in ("finalizers_in_order", "random_garbage", "legacy_finalizers", "fork"):
        assert len(run(name).stdout) > 20


def snapshot() -> tuple[list[Any], int, int, int, int]:
    gc.collect()
    threads = threading.active_count()
    return list(gc.callbacks), gc.get_debug(), len(gc.garbage), threads, len(gc.get_objects())


def leak() -> None:
    ring: list[Any] = [numpy.zeros(8)]
    ring.append(ring)


@pytest.mark.usefixtures("collector_paused")
def test_a_thousand_watches_leave_nothing_behind() -> None:
    def watch(collect: bool) -> None:
        reports: list[cyclescope.CycleReport] = []
        with cyclescope.observe_tensor_cycles(reports.append, devices="any"):
            assert len(gc.callbacks) == len(before[0]) + 1
            if collect:
                leak()
                gc.collect()
        assert bool(reports) == collect

    before = snapshot()
    for _ in range(5):  # the first ones make caches, and the thread that all share
        watch(collect=True)
    before = snapshot()
    for i in range(1000):
        watch(collect=i % 100 == 0)
    after = snapshot()
    assert after[:4] == before[:4]
    assert after[4] - before[4] < 100, "objects of stopped watches are still there"


@pytest.mark.usefixtures("collector_paused")
@pytest.mark.parametrize("count", [1, 20_000])
def test_few_and_many_objects_leave_the_list_of_garbage_as_it_was(count: int) -> None:
    """Nothing is put into it or taken out, and it never had room for more than its own."""
    dead = [0]

    class Mortal:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            dead[0] += 1

    older = object()
    gc.garbage.append(older)
    size = sys.getsizeof(gc.garbage)
    try:
        with cyclescope.observe_tensor_cycles(lambda report: None, devices="any"):
            for turn in range(1, 4):
                for _ in range(count):
                    Mortal()
                gc.collect()
                assert gc.garbage == [older]
                assert dead == [turn * count]
            assert not any(type(thing) is Mortal for thing in gc.get_objects())
        assert sys.getsizeof(gc.garbage) == size
        gc.garbage.append(count)
        assert gc.garbage == [older, count]
    finally:
        gc.garbage.clear()


@pytest.mark.usefixtures("collector_paused")
def test_watches_can_be_stopped_in_any_order() -> None:
    count = len(gc.callbacks)
    watches = [cyclescope.observe_tensor_cycles(print, devices="any") for _ in range(10)]
    assert len(gc.callbacks) == count + 1
    for watch in watches[::2] + watches[1::2]:
        assert len(gc.callbacks) == count + 1
        watch.stop()
        watch.stop()
    assert len(gc.callbacks) == count


@pytest.mark.usefixtures("collector_paused")
def test_a_watch_stopped_in_the_middle_of_a_collection() -> None:
    class Stops:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            watch.stop()

    watch = cyclescope.observe_tensor_cycles(print, devices="any")
    Stops()
    leak()
    gc.collect()
    assert gc.get_debug() == 0
    assert not gc.garbage
    assert not any(type(thing) is Stops for thing in gc.get_objects())
    # The list is not changed while CPython goes through it, but soon after.
    deadline = time.monotonic() + 60
    while any(type(c).__name__ == "Hook" for c in gc.callbacks):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.usefixtures("collector_paused")
def test_a_watch_begun_in_the_middle_of_a_collection() -> None:
    watches: list[cyclescope.Watch] = []
    reports: list[cyclescope.CycleReport] = []

    class Begins:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            watches.append(cyclescope.observe_tensor_cycles(reports.append, devices="any"))

    Begins()
    gc.collect()
    assert gc.get_debug() == 0
    assert not gc.garbage
    leak()
    gc.collect()
    watches[0].stop()
    assert reports


@pytest.mark.usefixtures("collector_paused")
def test_hooks_put_back_after_their_end_do_nothing() -> None:
    with cyclescope.observe_tensor_cycles(print, devices="any"):
        saved = list(gc.callbacks)
    others = list(gc.callbacks)
    gc.callbacks[:] = saved
    try:
        flags = []
        gc.callbacks.append(lambda phase, info: flags.append(gc.get_debug()))
        leak()
        gc.collect()
        assert flags == [0, 0]
    finally:
        gc.callbacks[:] = others


@pytest.mark.usefixtures("collector_paused")
@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("start",),
        ("stop", {}),
        ("start", {}),
        (1, 2),
        ("stop", {"collected": "many"}),
        (None,) * 3,
    ],
)
def test_the_hook_survives_strange_calls(arguments: tuple[Any, ...]) -> None:
    reports: list[cyclescope.CycleReport] = []
    with cyclescope.observe_tensor_cycles(reports.append, devices="any"):
        hook: Callable[..., object] = gc.callbacks[-1]
        assert hook(*arguments) is None
        leak()
        gc.collect()
    assert reports
    assert gc.get_debug() == 0
    assert not gc.garbage


@pytest.mark.usefixtures("collector_paused")
def test_callbacks_of_a_watch_may_use_cyclescope() -> None:
    """The callback looks on its own thread, while this one checks and collects."""
    seen: list[int] = []

    def callback(report: cyclescope.CycleReport) -> None:
        seen.append(len(report.leaks))
        cyclescope.find_tensor_cycles(devices="any")

    with cyclescope.observe_tensor_cycles(callback, devices="any"):
        leak()
        report = cyclescope.find_tensor_cycles(devices="any")
    assert len(report.leaks) == 1, "the callback's own check took this one's answer"
    assert seen == [1]


@pytest.mark.usefixtures("collector_paused")
def test_many_threads_check_at_once() -> None:
    failures: list[BaseException] = []

    def check() -> None:
        try:
            for _ in range(2):
                leak()
                cyclescope.find_tensor_cycles(devices="any")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=check) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert gc.get_debug() == 0
    assert not gc.garbage
    assert not [c for c in gc.callbacks if type(c).__name__ == "Hook"]


def test_the_hook_is_where_it_says() -> None:
    watch = _native.start_watch(("any",), False, (), False, 0, 0)
    assert type(gc.callbacks[-1]).__name__ == "Hook"
    _native.stop_watch(watch)
    assert "Hook" not in [type(c).__name__ for c in gc.callbacks]


def unseen(work: Callable[[], object]) -> int:
    before = _native.unseen_collections()
    work()
    after = _native.unseen_collections()
    assert before is not None
    assert after is not None
    return after - before


@pytest.fixture
def kept_callbacks() -> Iterator[list[Any]]:
    kept = gc.callbacks[:]
    yield gc.callbacks
    gc.callbacks[:] = kept


def test_collections_are_counted_that_the_hook_was_not_told_of(kept_callbacks: list[Any]) -> None:
    reports: list[cyclescope.CycleReport] = []
    with cyclescope.observe_tensor_cycles(reports.append, devices="any"):

        def without(work: Callable[[], object]) -> None:
            kept = gc.callbacks[:]
            gc.callbacks.clear()
            work()
            gc.callbacks[:] = kept

        assert unseen(gc.collect) == 0
        assert unseen(lambda: [gc.collect(generation) for generation in (0, 1, 2)]) == 0
        assert unseen(lambda: without(lambda: None)) == 0
        assert unseen(lambda: without(gc.collect)) == 1
        # What checks collect, they have looked at.
        assert unseen(lambda: without(cyclescope.find_tensor_cycles)) == 0
        kept_callbacks.clear()
        assert unseen(lambda: [gc.collect(), cyclescope.find_tensor_cycles(), gc.collect()]) == 2
    # Nobody watches.
    assert unseen(gc.collect) == 0


def test_a_further_watch_works_again(kept_callbacks: list[Any]) -> None:
    reports: list[cyclescope.CycleReport] = []
    with cyclescope.observe_tensor_cycles(lambda report: None, devices="any"):
        kept_callbacks.clear()
        gc.collect()
        with cyclescope.observe_tensor_cycles(reports.append, devices="any") as watch:
            assert unseen(gc.collect) == 0
            Node()
            gc.collect()
            watch.flush()
    assert len(reports) == 1


def test_what_was_not_seen_is_said_once() -> None:
    source = (
        "import gc, cyclescope\nwatch = cyclescope.{watch}\ngc.callbacks.clear()\n{work}\n"
        "watch.flush(); watch.flush(); watch.stop()"
    )
    said = "were not seen, because another part of the program changed gc.callbacks"
    for watch in "warn_tensor_cycles()", "observe_tensor_cycles(print)":
        for work, times in ("gc.collect(); gc.collect()", 1), ("", 0):
            done = python("-c", source.format(watch=watch, work=work), check=True)
            assert done.stderr.count(said) == times, done.stderr
