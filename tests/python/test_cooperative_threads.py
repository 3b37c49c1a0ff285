"""Programs whose threads take turns on one real thread (gevent, eventlet) go on under a watch."""

from __future__ import annotations

import subprocess

import pytest

from support.nodes import SOURCE
from support.processes import python

SECONDS = 60
"""A program that stands still is a failure, and not one that is waited for."""

STANDIN = """
import _thread, sys, threading, types

def not_a_thread(function, *args, **options):
    function(*(args[0] if args else ()))

names = "start_new_thread", "start_joinable_thread", "allocate_lock", "get_ident"
saved = {name: getattr(_thread, name) for name in names if hasattr(_thread, name)}
monkey = types.ModuleType("gevent.monkey")
monkey.is_object_patched = lambda module, name: module == "_thread" and name in saved
monkey.get_original = lambda module, name: saved[name]
sys.modules["gevent.monkey"] = monkey
for name in "start_new_thread", "start_joinable_thread":
    if name in saved:
        setattr(_thread, name, not_a_thread)
        setattr(threading, f"_{name}", not_a_thread)

import time
sleep = time.sleep
"""
"""gevent, as far as it is asked: a thread that is started runs at once, where it is started."""

PATCHED = {
    "stand-in": STANDIN,
    "gevent": """
from gevent import monkey
monkey.patch_all()
from gevent import sleep
""",
    "gevent, later": """
import cyclescope
early = cyclescope.warn_tensor_cycles(devices="any")
from gevent import monkey
monkey.patch_all()
from gevent import sleep
""",
    "eventlet": """
import eventlet
eventlet.monkey_patch()
from eventlet import sleep
""",
}

WATCHED = f"""
import gc, logging, os, signal, tempfile, threading
import numpy
import cyclescope
{SOURCE}
told = []
with cyclescope.warn_tensor_cycles(devices="any", min_bytes=0) as watch:
    other = cyclescope.observe_tensor_cycles(
        lambda report: told.append(threading.current_thread().name), devices="any"
    )
    sleep(0.01)
    Node()
    gc.collect()
    print("flushed", watch.flush(30), told, len(watch.leaks))
    other.stop()
try:
    with cyclescope.forbid_tensor_cycles(devices="any"):
        sleep(0.01)
        Node()
except cyclescope.TensorCycleError:
    print("forbidden")
if hasattr(signal, "SIGUSR2"):
    signals = cyclescope.on_signal("USR2", tempfile.mkdtemp(), devices="any")
    os.kill(os.getpid(), signal.SIGUSR2)
    for _ in range(1000):
        if signals.reports:
            break
        sleep(0.03)
    print(len(signals.reports), "answer")
else:
    print("1 answer")
for each in threading.enumerate():
    if each.name.startswith("cyclescope"):
        each.join(10)
sleep(0.1)
print(sorted(each.name for each in threading.enumerate()))
"""


def ended(program: str) -> subprocess.CompletedProcess[str]:
    return python("-W", "ignore", "-c", program, timeout=SECONDS)


@pytest.mark.parametrize("name", PATCHED)
def test_what_waits_for_a_thread_does_not_stand_still(name: str) -> None:
    if name != "stand-in":
        pytest.importorskip(name.partition(",")[0])
    done = ended(PATCHED[name] + WATCHED)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "flushed True ['cyclescope'] 1",
        "forbidden",
        "1 answer",
        "['MainThread']",
    ], done.stderr
    assert "Traceback" not in done.stderr


def test_others_have_their_turn_while_reports_are_waited_for() -> None:
    """A log handler may wait for what only another greenlet does."""
    pytest.importorskip("gevent")
    done = ended(
        PATCHED["gevent"]
        + """
import gc, gevent, threading, time
import numpy
import cyclescope
"""
        + SOURCE
        + """
gate = threading.Lock()
gate.acquire()

def tell(report):
    with gate:
        print("told")

def open_later():
    gevent.sleep(0.2)
    gate.release()

watch = cyclescope.observe_tensor_cycles(tell, devices="any")
Node()
gc.collect()
gevent.spawn(open_later)
print(watch.flush(30))
"""
    )
    assert (done.returncode, done.stdout) == (0, "told\nTrue\n"), done.stderr


def test_waiting_for_an_import_is_no_turn_of_the_program() -> None:
    """``gevent.wait()`` ends when no greenlet has anything left to do."""
    pytest.importorskip("gevent")
    done = ended(
        PATCHED["gevent"]
        + """
import gevent
import cyclescope
relief = cyclescope.collect_on_pressure()
print(gevent.wait(timeout=30))
relief.stop()
"""
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
