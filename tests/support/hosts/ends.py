"""Host programs about threads, forks and the end of a process."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from .parts import (
    WATCHES,
    Acts,
    Loud,
    Node,
    alive,
    begins_early,
    comparable,
    ends,
    program,
    state,
)

# When and where collections happen.


@program
def generations() -> None:
    gc.collect()
    for generation in (0, 1, 2, 0, 1, 2):
        Loud(generation)
        before = gc.get_stats()[generation]
        print(gc.collect(generation))
        after = gc.get_stats()[generation]
        print(comparable({key: after[key] - before[key] for key in after}))
        state()


@program
def automatic_collections() -> None:
    gc.set_threshold(50, 3, 3)
    gc.enable()
    for i in range(5000):
        Node(i)
    gc.disable()
    gc.collect()
    state()


@program
def frozen_objects() -> None:
    frozen = Node("frozen")
    gc.collect()
    gc.freeze()
    frozen.name = Node("held by a frozen one")
    Node("free")
    gc.collect()
    state()
    gc.unfreeze()
    state()
    del frozen
    gc.collect()
    state()


@program
def threads_make_garbage() -> None:
    gc.set_threshold(100, 5, 5)
    gc.enable()
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(400):
                node = Node(i)
                node.name = Acts(lambda me: me.array.sum())
                del node
                if i % 50 == number:
                    gc.collect()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.disable()
    gc.collect()
    # It does nothing while another thread is in a collection, and that of the watch may be.
    deadline = time.monotonic() + 60
    while alive() and time.monotonic() < deadline:
        time.sleep(0.01)
        gc.collect()
    print(failures)
    state()


@program
def finalizer_waits_for_another_thread() -> None:
    """Another thread wants to collect while this one is in a finalizer, in a collection."""
    asked, answered = threading.Event(), threading.Event()

    def other() -> None:
        asked.wait()
        Node()
        print("other", gc.collect())
        answered.set()

    def ask(_: object) -> None:
        asked.set()
        answered.wait()

    thread = threading.Thread(target=other)
    thread.start()
    Acts(ask)
    gc.collect()
    thread.join()
    gc.collect()
    state()


# Fork.


def child(work: Callable[[], None]) -> None:
    """Fork, do the work in the child, wait for it."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            sys.stdout.flush()
            code = 0
        except BaseException as error:
            print("child failed:", repr(error), file=sys.stderr)
        finally:
            os._exit(code)
    print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def in_child() -> None:
    print("in child", gc.collect())
    for _ in range(3):
        Node()
        gc.collect()
    state()
    if "--watch" in sys.argv:
        expect_a_report_from_a_new_watch()


def expect_a_report_from_a_new_watch() -> None:
    import cyclescope

    reports: list[cyclescope.CycleReport] = []
    with cyclescope.observe_tensor_cycles(reports.append, devices="any") as new:
        for inherited in WATCHES:
            inherited.stop()
        Node()
        gc.collect()
        new.flush()
        assert reports, "the child's own watch is blind"
    Node()
    assert cyclescope.find_tensor_cycles(devices="any").leaks
    assert gc.get_debug() == 0
    assert not gc.garbage
    assert not gc.callbacks
    assert alive() == 0


@program
def fork() -> None:
    Node()
    child(in_child)
    print(gc.collect())
    state()


@program
def fork_in_thread() -> None:
    Node()
    thread = threading.Thread(target=child, args=(in_child,))
    thread.start()
    thread.join()
    gc.collect()
    state()


@program
def fork_in_finalizer() -> None:
    """The child comes to life in the middle of a collection, and ends it."""
    sys.stdout.flush()
    pids: list[int] = []

    def fork_and_wait(_: object) -> None:
        pids.append(os.fork())
        if pids != [0]:
            print("child", os.waitstatus_to_exitcode(os.waitpid(pids[0], 0)[1]))

    Acts(fork_and_wait)
    Loud("beside")
    Node()
    print("collected", gc.collect())
    state()
    if pids == [0]:
        try:
            in_child()
            sys.stdout.flush()
        except BaseException as error:
            print("child failed:", repr(error), file=sys.stderr)
        finally:
            os._exit(0)


@program
def child_exits_normally() -> None:
    sys.stdout.flush()
    if os.fork() == 0:
        Node()
        sys.exit(3)
    print("child", os.waitstatus_to_exitcode(os.wait()[1]))


# The end.


@ends
def garbage_left_at_exit() -> None:
    globals()["left"] = Loud("in a global")
    Loud("garbage")


@begins_early
def watch_begun_at_exit() -> None:
    def last() -> None:
        if "--watch" in sys.argv:
            import cyclescope

            cyclescope.observe_tensor_cycles(lambda report: None, devices="any")
        Node()
        gc.collect()
        state()

    # The first to be registered is the last to be called.
    atexit.register(last)


@ends
def finalizers_at_module_teardown() -> None:
    sys.modules["teardown"] = Loud("module")  # type: ignore[assignment]
    ring: list[Any] = [Loud("in a ring of a module"), sys.modules]
    ring.append(ring)


@ends
def daemon_threads_at_exit() -> None:
    def work() -> None:
        while True:
            Node()
            gc.collect()

    for _ in range(4):
        threading.Thread(target=work, daemon=True).start()


@ends
def daemon_thread_dies_in_collection() -> None:
    """The interpreter ends while a daemon thread is in the middle of destroying garbage."""

    class Sleeps:
        __slots__ = ()

        def __del__(self) -> None:
            destroying.set()
            time.sleep(0.3)

    class Late:
        """Keeps the interpreter's end going until the thread wants to go on, and has to die."""

        def __del__(self) -> None:
            sleep(0.6)

    sleep = time.sleep
    sys.modules["late"] = Late()  # type: ignore[assignment]
    destroying = threading.Event()

    def work() -> None:
        while True:
            Node(Sleeps())
            gc.collect()

    threading.Thread(target=work, daemon=True).start()
    destroying.wait()


@program
def thread_exits() -> None:
    def work() -> None:
        Node()
        gc.collect()
        sys.exit()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@begins_early
def exception_at_exit() -> None:
    def fail() -> None:
        raise ValueError("at exit")

    atexit.register(fail)
    Node()


@ends
def ends_with_an_exception() -> None:
    Node()
    atexit.register(state)
    raise ValueError("the program's own")


@begins_early
def collects_at_exit() -> None:
    def last() -> None:
        Loud("late")
        print(gc.collect())
        state()

    atexit.register(last)
