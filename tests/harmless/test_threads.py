"""Threads that collect, leak and start and stop watches all at once; Ctrl-C, forks and the end.

Each program is run ``RUNS`` times (1), as what goes wrong here does so now and then.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from support.processes import python

RUNS = int(os.environ.get("RUNS", "1"))

HEAD = """
import gc, os, random, signal, sys, threading, time, weakref
import numpy
import cyclescope

watched = "--watch" in sys.argv
reports = []


class Thing:
    def __init__(self):
        self.me = self
        self.array = numpy.zeros(64)


def start():
    if watched:
        return cyclescope.observe_tensor_cycles(reports.append, devices="any")


def stop(watch):
    if watch is not None:
        watch.stop()


def alive():
    return sum(isinstance(it, Thing) for it in gc.get_objects())


def last_leak():
    "The watch is there, and sees."
    if watched:
        watch = start()
        reports.clear()
        Thing()
        gc.collect()
        assert watch.flush(60), "nothing is told any more"
        assert reports, "the watch is blind"
        watch.stop()


def state():
    for _ in range(3):
        gc.collect()
    others = sum("cyclescope" in repr(it) for it in gc.callbacks)
    print("alive", alive(), "debug", gc.get_debug(), "garbage", len(gc.garbage), "ours", others)


"""

STATE = "alive 0 debug 0 garbage 0 ours 0\n"

RESTLESS = """
class Busy(Thing):
    def __del__(self):
        died.append(None)
        if len(died) % 7 == 0:
            gc.collect(1)
        elif len(died) % 11 == 0:
            time.sleep(0)

died = []
made = []
failures = []
sys.setswitchinterval(1e-4)

def work(number):
    dice = random.Random(number)
    try:
        while time.monotonic() < end:
            what = dice.randrange(6)
            if what == 0 and number % 2:
                watch = start()
                Thing()
                gc.collect(dice.randrange(3))
                stop(watch)
            elif what < 3:
                made.append(None)
                Busy()
            else:
                Thing()
                gc.collect(dice.randrange(3))
    except BaseException as error:
        failures.append(repr(error))

if __name__ == "__main__":
    end = time.monotonic() + 1
    first = start()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(0.005)
    stop(first)
    gc.collect()
    print("failures", failures, "lost", len(made) - len(died))
    last_leak()
    state()
"""

INTERRUPTED = """
class Slow(Thing):
    def __del__(self):
        for _ in range(100):
            pass

sys.unraisablehook = lambda it: None
pressed = threading.Event()
armed = False
interrupted = 0

def interrupt(number, frame):
    "Interrupts the loop below, and nothing else."
    global armed
    if armed:
        armed = False
        raise KeyboardInterrupt

def press():
    while not pressed.wait(0.001):
        os.kill(os.getpid(), signal.SIGINT)

def work():
    "A call, as CPython 3.13 may raise the interrupt of a loop outside of the `try` around it."
    global armed
    while time.monotonic() < end:
        armed = True
        Slow()
        Thing()
        gc.collect(random.randrange(3))

for number in (signal.SIGINT, signal.SIGALRM):
    signal.signal(number, interrupt)
watch = start()
thread = threading.Thread(target=press)
thread.start()
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0013)
end = time.monotonic() + 200
while interrupted < 100 and time.monotonic() < end:
    try:
        work()
    except KeyboardInterrupt:
        interrupted += 1
armed = False
signal.setitimer(signal.ITIMER_REAL, 0)
pressed.set()
thread.join()
stop(watch)
print("interrupted", interrupted)
last_leak()
state()
"""

FORKS = """
def leak_on():
    while not done.is_set():
        Thing()
        gc.collect(random.randrange(3))
        if here:
            in_child()

def in_child():
    "Comes to life in a finalizer, in the midst of a collection; it ends that, and goes on."
    code = 1
    try:
        for _ in range(3):
            Thing()
            gc.collect()
        for _ in range(2):
            last_leak()
        code = gc.get_debug() or len(gc.garbage)
    finally:
        os._exit(code)

class Forks(Thing):
    def __del__(self):
        child = os.fork()
        if child:
            children.append(child)
        else:
            here.append(os.getpid())

children, here = [], []
done = threading.Event()
watch = start()
threads = [threading.Thread(target=leak_on) for _ in range(3)]
for thread in threads:
    thread.start()
results = []
for number in range(15):
    Forks()
    # Another thread may be the one that collects it, and so that forks.
    while len(children) <= number and not here:
        gc.collect()
    if here:
        in_child()
    for _ in range(1000):
        ended, status = os.waitpid(children[number], os.WNOHANG)
        if ended:
            break
        time.sleep(0.01)
    else:
        os.kill(children[number], 9)
        status = "hangs"
    results.append(status)
done.set()
for thread in threads:
    thread.join()
stop(watch)
print("children", results)
last_leak()
state()
"""

NATIVE = """
from cyclescope import _native

def begin():
    return _native.start_watch(("any",), False, (), False, 0, 0)

def count(watch):
    return _native.tallies(watch)

def end(watch):
    return _native.stop_watch(watch)

def began(phase, info):
    where = sys._getframe(1).f_code
    if phase == "start" and where in (begin.__code__, count.__code__, end.__code__):
        where_collected.add(where.co_name)

where_collected = set()
first = begin()
gc.callbacks.append(began)
for _ in range(50):
    watch = begin()
    for number in range(10):
        cycle = type(f"Cycle{number}", (), {})()
        cycle.me, cycle.array = cycle, numpy.zeros(64)
        del cycle
    gc.collect()
    gc.set_threshold(1, 1, 1)
    counted = count(watch)
    seen = end(watch)
    gc.set_threshold(700, 10, 10)
print("tallies", len(counted), len(seen), "collected in", where_collected)
"""

ENDS = """
class Sleeps(Thing):
    def __del__(self):
        sleep(0.0005)

sleep = time.sleep

def leak_on(number):
    while True:
        Sleeps()
        if number % 3 == 0:
            watch = start()
        gc.collect(number % 3)
        if number % 3 == 0:
            stop(watch)
        if gc.get_count()[0] > 10_000:
            # While one thread collects, the others would fill the memory.
            sleep(0.001)

start()
if watched:
    cyclescope.observe_tensor_cycles(lambda report: sleep(0.001), devices="any")
for number in range(8):
    threading.Thread(target=leak_on, args=(number,), daemon=True).start()
time.sleep(random.random() / 5)
print("end", flush=True)
"""


def run(program: str, *options: str) -> subprocess.CompletedProcess[str]:
    # Forking with threads is deprecated, and the watch has a thread.
    return python("-X", "faulthandler", "-W", "ignore", "-c", HEAD + program, *options, timeout=280)


def expect(program: str, printed: str) -> None:
    """The program prints this, and ends well."""
    for _ in range(RUNS):
        done = run(textwrap.dedent(program), "--watch")
        assert (done.returncode, done.stdout) == (0, printed), done.stderr


@pytest.mark.timeout(300 * RUNS)
def test_sixteen_threads_collect_leak_and_start_and_stop_watches() -> None:
    expect(RESTLESS, "failures [] lost 0\n" + STATE)


@pytest.mark.timeout(300 * RUNS)
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no signal comes by itself here")
def test_interrupts_a_thousand_times_a_second() -> None:
    expect(INTERRUPTED, "interrupted 100\n" + STATE)


@pytest.mark.timeout(300 * RUNS)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_finalizers_that_fork_among_threads() -> None:
    expect(FORKS, f"children {[0] * 15}\n" + STATE)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="no allocation collects")
def test_watches_come_and_go_without_a_collection() -> None:
    """In which a thread may be ended, which aborts the process if Rust is on its stack."""
    done = run(textwrap.dedent(NATIVE), "--watch")
    assert (done.returncode, done.stdout) == (0, "tallies 10 10 collected in set()\n"), done.stderr


@pytest.mark.timeout(300 * RUNS)
def test_the_end_in_the_midst_of_collections() -> None:
    """Of threads that die in them, with watches that are being started and stopped."""
    crashes = 0
    for _ in range(RUNS):
        done = run(ENDS, "--watch")
        if done.returncode == -signal.SIGSEGV and sys.version_info < (3, 11):
            # CPython 3.10 itself, with no watch, crashes at the end of such programs now and then.
            crashes += 1
            continue
        assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr
    assert crashes <= (RUNS + 1) // 2
