"""Explicit checks on a free-threaded Python while other threads go on; for `free_threaded.py`."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy
import pytest

import cyclescope
from cyclescope import _native

SECONDS = float(os.environ.get("STRESS_SECONDS", "20"))
SIZE = 1 << 20
SHARED = 50
CHURNING, LOOKING = 10, 6


class Node:
    def __init__(self) -> None:
        self.items: list[Any] = []
        self.table: dict[float, Any] = {}


def array() -> Any:
    return numpy.zeros(SIZE, dtype=numpy.uint8)


def test_the_gil_stays_off() -> None:
    assert not sys._is_gil_enabled()  # type: ignore[attr-defined,unused-ignore]


def test_a_cycle_is_found_with_its_names() -> None:
    gc.disable()
    try:
        make_leak()
        report = cyclescope.find_tensor_cycles(devices="any")
    finally:
        gc.enable()
    (leak,) = report.leaks
    assert leak.pattern == "closure-captures-owner"
    assert leak.bytes_held == SIZE
    assert "Node.callback" in leak.summary


def make_leak() -> None:
    node: Any = Node()
    node.buffer = array()
    node.callback = lambda: node


def test_frozen_garbage_is_found() -> None:
    gc.collect()
    gc.disable()
    try:
        make_leak()
        gc.freeze()
        (leak,) = cyclescope.find_tensor_cycles(devices="any").leaks
        assert leak.frozen == 1
    finally:
        gc.unfreeze()
        gc.enable()
        gc.collect()


kept: list[Any] = []


def test_what_keeps_an_array_is_named() -> None:
    kept.append(array())
    try:
        retention = cyclescope.why_alive(kept[0])
        (keeper,) = retention.keepers
        assert retention.is_enough
        assert "`kept`" in keeper.words
        (row,) = (it for it in cyclescope.heap().top("owner").rows if "`kept`" in it.name)
        assert row.retained_bytes == SIZE
    finally:
        kept.clear()


def test_what_grows_is_named() -> None:
    monitor = cyclescope.watch_growth(devices="any", every=5)
    try:
        for _ in range(100):
            kept.append(array())
            monitor.step()
        assert any("`kept`" in growth.owner for growth in monitor.found)
    finally:
        monitor.stop()
        kept.clear()


def test_a_variable_of_another_thread_is_named() -> None:
    ready, done = threading.Event(), threading.Event()

    def work() -> None:
        mine = array()
        kept.append(mine)
        ready.set()
        done.wait()
        del mine

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    try:
        words = str(cyclescope.why_alive(kept.pop()))
        assert "local `mine`" in words
    finally:
        done.set()
        thread.join()


def test_a_watch_says_once_what_it_cannot_do(tmp_path: Path) -> None:
    program = """
import cyclescope
watch = cyclescope.warn_tensor_cycles(report_dir=None)
watch.flush()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr.count("Only explicit checks work here") == 1


def test_a_test_that_leaks_fails(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        """
import numpy
class Node: pass
def test_leaks():
    node = Node()
    node.me, node.buffer = node, numpy.zeros(1 << 20)
def test_is_clean():
    numpy.zeros(1 << 20)
"""
    )
    options = ["--tensor-cycles=error", "--tensor-cycles-devices=any", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 1, done.stdout
    assert "1 failed, 1 passed" in done.stdout


def churn(seed: int, shared: list[Any], stop: float, failures: list[BaseException]) -> None:
    """Changes objects that other threads change too, and leaves cycles without a buffer."""
    chance = random.Random(seed)

    def suspended(value: Any) -> Any:
        several = [value, value, value]
        yield several
        yield value

    def change(node: Any) -> None:
        match chance.randrange(9):
            case 0:
                node.items.append(Node())
            case 1:
                node.items[-1:] = []
            case 2:
                node.table[chance.random()] = [node]
            case 3:
                node.table.clear()
            case 4:
                node.other = chance.choice(shared)
            case 5:
                ring: Any = Node()
                ring.me, ring.function = ring, lambda: ring
            case 6:
                generator = suspended(node)
                next(generator)
                node.table[0.0] = generator
            case 7:
                made: Any = type("Made", (), {"attribute": 1})
                node.made = made()
            case _:
                node.items = []

    try:
        while time.monotonic() < stop:
            change(chance.choice(shared))
    except BaseException as error:
        failures.append(error)


def look(seed: int, shared: list[Any], stop: float, failures: list[BaseException]) -> None:
    """Checks, in which nothing that is in use is ever called garbage."""
    chance = random.Random(seed)
    try:
        while time.monotonic() < stop:
            match chance.randrange(5):
                case 0 | 1:
                    assert not cyclescope.find_tensor_cycles(devices="any").leaks
                case 2:
                    live = {id(node) for node in shared}
                    assert live.isdisjoint(map(id, _native.unreachable_objects()))
                case 3:
                    assert cyclescope.why_alive(chance.choice(shared).buffer).paths
                case _:
                    assert cyclescope.heap().buffers
    except BaseException as error:
        failures.append(error)


@pytest.mark.timeout(SECONDS * 10)
def test_threads_that_change_what_is_looked_at() -> None:
    shared: list[Any] = [Node() for _ in range(SHARED)]
    for node in shared:
        node.buffer = array()
    failures: list[BaseException] = []
    stop = time.monotonic() + SECONDS
    threads = [
        threading.Thread(target=work, args=(seed, shared, stop, failures))
        for work, number in ((churn, CHURNING), (look, LOOKING))
        for seed in range(number)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
