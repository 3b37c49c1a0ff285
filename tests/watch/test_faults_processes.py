"""Forks, signals, threads, greenlets, coroutines and the end, in the midst of reports."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import signal
import subprocess
import textwrap
import threading

import numpy
import pytest

import cyclescope
from support.nodes import SOURCE, Node
from support.processes import python

pytestmark = pytest.mark.usefixtures("collector_paused")

HEAD = f"""
import gc, os, sys, threading, time
import numpy
import cyclescope

gc.disable()
{SOURCE}

"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    # Forking with threads is deprecated, and the watch has a thread.
    return python("-W", "ignore", "-c", HEAD + textwrap.dedent(program), timeout=120)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_forks_in_the_middle_of_reports() -> None:
    """The teller may hold any lock, its own or of logging, when the process forks."""
    done = run(
        """
        import logging, tempfile

        folder = tempfile.mkdtemp()
        stop = threading.Event()

        def leak_on():
            while not stop.is_set():
                Node()
                gc.collect()

        watches = [
            cyclescope.observe_tensor_cycles(lambda r: r.to_html(), devices="any"),
            cyclescope.warn_tensor_cycles(devices="any", report_dir=folder),
        ]
        thread = threading.Thread(target=leak_on)
        thread.start()
        for number in range(40):
            time.sleep(0.002)
            child = os.fork()
            if not child:
                # The child logs, leaks, collects and is watched again if it asks.
                logging.getLogger("cyclescope").debug("from the child")
                Node()
                gc.collect()
                told = []
                with cyclescope.observe_tensor_cycles(told.append, devices="any"):
                    Node()
                    gc.collect()
                os._exit(len(told) != 1)
            for _ in range(3000):
                done, status = os.waitpid(child, os.WNOHANG)
                if done:
                    break
                time.sleep(0.01)
            else:
                os.kill(child, 9)
                sys.exit(f"child {number} hangs")
            assert status == 0, status
        stop.set()
        thread.join()
        print("done")
        """
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("delay", [0, 0.0001, 0.0002, 0.0003, 0.0007, 0.001, 0.002, 0.004])
def test_a_fork_in_the_middle_of_the_first_leak(delay: float) -> None:
    """What is made once, at the first leak, does not let the thread that forks run meanwhile."""
    done = run(
        f"""
        stop = threading.Event()

        def leak_on():
            while not stop.is_set():
                Node()
                gc.collect()

        watch = cyclescope.observe_tensor_cycles(lambda report: None, devices="any")
        thread = threading.Thread(target=leak_on)
        thread.start()
        time.sleep({delay})
        child = os.fork()
        if not child:
            told = []
            with cyclescope.observe_tensor_cycles(told.append, devices="any"):
                Node()
                gc.collect()
            os._exit(len(told) != 1)
        _, status = os.waitpid(child, 0)
        stop.set()
        thread.join()
        print("collects" if status == 0 else "never collects")
        """
    )
    assert (done.returncode, done.stdout) == (0, "collects\n"), done.stderr


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no signal comes by itself here")
def test_signal_handlers_that_leak_and_collect() -> None:
    """A handler runs between any two instructions, also of a finalizer in a collection."""
    calls: list[int] = []

    def handle(number: int, frame: object) -> None:
        calls.append(number)
        Node()
        gc.collect(0)
        # One at a time: where a handler takes longer than the next signal, they would pile up.
        signal.setitimer(signal.ITIMER_REAL, 0 if len(calls) > 10 else 0.001)

    class Slow(Node):
        def __del__(self) -> None:
            for _ in range(200):
                pass

    before = signal.signal(signal.SIGALRM, handle)
    try:
        with cyclescope.observe_tensor_cycles(lambda report: None, devices="any") as watch:
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            while len(calls) <= 10:
                Slow()
                gc.collect(0)
            gc.collect()
            assert watch.flush(240)
            assert watch.leaks
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert gc.get_debug() == 0
    assert not gc.garbage


def test_thirty_two_threads_make_garbage() -> None:
    each = 200
    failures: list[BaseException] = []

    class Shared(Node):
        pass

    def work() -> None:
        try:
            for number in range(each):
                Shared()
                if number % 10 == 0:
                    gc.collect(number % 3)
        except BaseException as error:
            failures.append(error)

    with cyclescope.observe_tensor_cycles(lambda report: None, devices="any") as watch:
        threads = [threading.Thread(target=work) for _ in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        gc.collect()
        assert watch.flush(240)
        counts = {tally.summary: tally.count for tally in watch.leaks}
    assert not failures
    assert sum(counts.values()) == 32 * each
    assert gc.get_debug() == 0
    assert not gc.garbage


def test_coroutines() -> None:
    variable = contextvars.ContextVar("variable", default=0)

    async def step(number: int) -> int:
        variable.set(number)
        for _ in range(20):
            Node()
            gc.collect(0)
            await asyncio.sleep(0)
        return variable.get()

    async def main() -> list[int]:
        return await asyncio.gather(*map(step, range(20)))

    with cyclescope.observe_tensor_cycles(lambda report: None, devices="any") as watch:
        assert asyncio.run(main()) == list(range(20))
        gc.collect()
        assert watch.flush(240)
        nodes = sum(tally.count for tally in watch.leaks if "Node.me" in tally.summary)
    assert nodes == 400


def test_greenlets() -> None:
    """Switches of the stack within finalizers, and a suspended one that is garbage."""
    greenlet = pytest.importorskip("greenlet", reason="greenlet is not installed")
    order: list[str] = []

    class Switches(Node):
        def __del__(self) -> None:
            order.append("finalizer")
            other.switch()
            order.append("finalizer again")

    def elsewhere() -> None:
        while True:
            order.append("elsewhere")
            Node()
            greenlet.getcurrent().parent.switch()

    def main() -> None:
        Switches()
        gc.collect()

    def holds_itself() -> None:
        array, me = numpy.zeros(2**10), greenlet.getcurrent()
        greenlet.getcurrent().parent.switch()
        del array, me

    with cyclescope.observe_tensor_cycles(lambda report: None, devices="any") as watch:
        runner = greenlet.greenlet(main)
        other = greenlet.greenlet(elsewhere, parent=runner)
        runner.switch()
        suspended = greenlet.greenlet(holds_itself)
        suspended.switch()
        del suspended
        gc.collect()
        gc.collect()
        assert watch.flush(240)
        assert {tally.summary for tally in watch.leaks} >= {"Switches.me → Switches"}
    assert order == ["finalizer", "elsewhere", "finalizer again"]
    assert gc.get_debug() == 0
    assert not gc.garbage


@pytest.mark.parametrize("ending", ["pass", "sys.exit(0)", "raise SystemExit"])
def test_reports_pending_at_the_end_are_told_or_dropped_in_time(ending: str) -> None:
    """More reports than there is time for, and one that is never told: the program ends."""
    done = run(
        f"""
        import cyclescope._teller
        cyclescope._teller.EXIT_SECONDS = 0.5
        told = []

        def tell(report):
            told.append(report)
            if len(told) == 3:
                threading.Event().wait()

        cyclescope.observe_tensor_cycles(tell, devices="any")
        for _ in range(50):
            Node()
            gc.collect()
        print("end", flush=True)
        {ending}
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


LATE = """
import atexit

def late():
    import cyclescope

    cyclescope.observe_tensor_cycles(print, devices="any")

class Node:
    def __init__(self):
        self.me = self

    def __del__(self):
        print("finalized")

atexit.register(late)
Node()
"""


def test_a_watch_that_nobody_ends() -> None:
    """The last collections come while the interpreter is being taken apart."""
    done = python("-c", LATE, timeout=120)
    assert (done.returncode, done.stdout) == (0, "finalized\n"), done.stderr
