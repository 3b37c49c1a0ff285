"""What signal handlers of the program raise arrives in the program, whatever we do meanwhile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import cyclescope
from cyclescope import _native
from support.marks import needs_torch

TIMER = """
import signal, sys, time

class Timeout(Exception): ...

def on_alarm(number, frame):
    global fired
    fired += 1
    raise Timeout

fired = met = 0

def interrupted(work, seconds, rounds):
    '''How often the handler has run, and how often what it raised arrived here.'''
    global met
    for number in range(rounds):
        signal.signal(signal.SIGALRM, on_alarm)
        ends = time.perf_counter() + 30  # on a machine that does much else
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds * (1 + number % 7) / 3)
            while time.perf_counter() < ends:
                work()
            break  # it was lost
        except Timeout:
            met += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
    print(fired == rounds, met == rounds)
"""
STEPS = """
import cyclescope
kept = [[] for _ in range(100_000)]
monitor = cyclescope.watch_growth(every=1, devices="any")
interrupted(monitor.step, 0.01, 40)
print(monitor.cost.samples > 40)
"""
FORGETFUL = STEPS.replace(
    "interrupted(",
    """
def forgetful(number, frame):
    del number, frame
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    raise_timeout()

def raise_timeout():
    on_alarm(0, None)

asked = signal.signal
signal.signal = lambda number, handler: asked(number, forgetful if handler is on_alarm else handler)
interrupted(""",
)
"""As :data:`STEPS`, with a handler of which no variable shows that it is one."""
REPLACED = STEPS.replace(
    "interrupted(",
    """
class OnAlarm:
    def __call__(self, *arguments):
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        on_alarm(*arguments)

class Derived(OnAlarm): ...

asked = signal.signal
signal.signal = lambda number, handler: asked(number, Derived() if handler is on_alarm else handler)
interrupted(""",
)
"""As :data:`STEPS`, with an object as handler, which puts another in its place before it raises."""
COLLECTIONS = """
import gc, torch, cyclescope

class Owner:
    def __init__(self):
        self.tensors = [torch.zeros(1) for _ in range(500)]
        self.me = self

def work():
    Owner()
    gc.collect(0)

gc.disable()
watch = cyclescope.observe_tensor_cycles(lambda report: None)
work()
watch.flush(60)
interrupted(work, 0.003, 60)
watch.flush(60)
print(sum(leak.count for leak in watch.leaks) > 5)
"""
UNDER_RUN = """
import torch
model = torch.nn.Linear(10, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = [[] for _ in range(300_000)]

def work():
    torch.set_grad_enabled(True)  # an optimizer that is interrupted may leave it off
    optimizer.zero_grad()
    model(torch.ones(2, 10)).sum().backward()
    optimizer.step()

work()  # the first imports much, which has to end
interrupted(work, 0.01, 40)
"""


def output(command: list[str], cwd: Path) -> str:
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("steps", [STEPS, REPLACED, FORGETFUL])
def test_a_step_of_a_monitor_passes_it_on(steps: str, tmp_path: Path) -> None:
    assert output([sys.executable, "-c", TIMER + steps], tmp_path) == "True True\nTrue\n"


FIRST = """
import os
import cyclescope

def lost(after):
    '''How often what the handler raised did not arrive, in a process that has not looked yet.'''
    child = os.fork()
    if child == 0:
        try:
            signal.setitimer(signal.ITIMER_REAL, after)
            monitor.step()
            time.sleep(10)
        except Timeout:
            os._exit(0)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

signal.signal(signal.SIGALRM, on_alarm)
monitor = cyclescope.watch_growth(every=1, devices="any")
print(sum(lost(0.0001 * number) for number in range(1, 150)))
"""


def test_a_handler_runs_while_the_interpreter_is_looked_at_first(tmp_path: Path) -> None:
    """How an interpreter lays objects out is learnt from some made in Python code."""
    assert output([sys.executable, "-c", TIMER + FIRST], tmp_path) == "0\n"


@needs_torch
def test_no_handler_runs_in_a_look_at_garbage(tmp_path: Path) -> None:
    """To ask a tensor for its device in words would run it, and lose what it raises."""
    assert output([sys.executable, "-c", TIMER + COLLECTIONS], tmp_path) == "True True\nTrue\n"


@needs_torch
def test_a_sample_that_comes_by_itself_passes_it_on(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(TIMER + UNDER_RUN)
    command = [sys.executable, "-m", "cyclescope", "run", "--growth", "--devices", "any"]
    assert output([*command, str(program)], tmp_path).startswith("True True\n")


def test_what_a_call_on_the_main_thread_raises_arrives_there() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    def wait() -> None:
        _native.call_in_main_thread(interrupt)
        for _ in range(1000):
            sum(range(10))

    with pytest.raises(KeyboardInterrupt):
        wait()


FREED = """
import gc, signal, weakref
import cyclescope

class Timeout(Exception): ...
class Thing: ...

def on_alarm(number, frame):
    raise Timeout

def times_out():
    thing = Thing()
    global seen
    seen = weakref.ref(thing)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    while True:
        monitor.step()

gc.disable()
signal.signal(signal.SIGALRM, on_alarm)
kept = [[] for _ in range(100_000)]
monitor = cyclescope.watch_growth(every=1, devices="any")
for _ in range(10):
    try:
        times_out()
    except Timeout:
        pass
    assert seen() is None
print(monitor.cost.samples > 5)
"""


def test_what_was_timed_out_is_freed_at_once(tmp_path: Path) -> None:
    assert output([sys.executable, "-c", FREED], tmp_path) == "True\n"


THREAD = """
import ctypes, threading, time
import cyclescope

class Timeout(Exception): ...

def interrupt():
    time.sleep(0.1)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(threading.main_thread().ident), ctypes.py_object(Timeout)
    )

kept = [[] for _ in range(100_000)]
monitor = cyclescope.watch_growth(every=1, devices="any")
met = 0
for _ in range(10):
    threading.Thread(target=interrupt).start()
    ends = time.perf_counter() + 20
    try:
        while time.perf_counter() < ends:
            monitor.step()
    except Timeout:
        met += 1
print(met)
"""


def test_what_another_thread_raises_here_is_passed_on(tmp_path: Path) -> None:
    assert output([sys.executable, "-c", THREAD], tmp_path) == "10\n"


def test_an_error_of_ours_is_not_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = cyclescope.watch_growth(devices="any")
    # A function in C that takes other arguments: nothing of the program is in the traceback.
    monkeypatch.setattr(monitor, "_seen", SimpleNamespace(step=len, end=list))

    def wait() -> None:
        _native.call_in_main_thread(monitor.sample)
        for _ in range(1000):
            sum(range(10))

    wait()
    assert monitor.steps == 1
    assert monitor.step() == []
    assert monitor.steps == 1  # it has stopped
    monitor.stop()
