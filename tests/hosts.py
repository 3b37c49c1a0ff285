"""Host programs that must not notice cyclescope: each is run bare and watched, and compared.

``python hosts.py NAME`` runs one bare, with ``--watch`` under the always-on watch. A program prints
what it can see. Where the watch still has to be there at the end, it is asked for a last leak.
"""

from __future__ import annotations

import atexit
import gc
import os
import random
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy

PROGRAMS: dict[str, Callable[[], None]] = {}
UNWATCHED: set[str] = set()
"""Programs that throw every callback out."""
EARLY: set[str] = set()
"""Programs that begin before the watch, so that what they register for the exit comes after it."""
ENDINGS: set[str] = set()
"""Programs about their own end: nothing more may be run in them."""


def program(function: Callable[[], None]) -> Callable[[], None]:
    PROGRAMS[function.__name__] = function
    return function


def throws_callbacks_out(function: Callable[[], None]) -> Callable[[], None]:
    UNWATCHED.add(function.__name__)
    return program(function)


def begins_early(function: Callable[[], None]) -> Callable[[], None]:
    EARLY.add(function.__name__)
    return program(function)


def ends(function: Callable[[], None]) -> Callable[[], None]:
    ENDINGS.add(function.__name__)
    return program(function)


class Node:
    """An object in a cycle of one, with an array."""

    def __init__(self, name: Any = None) -> None:
        self.name = name
        self.me: Any = self
        self.array: Any = numpy.zeros(16)
        # Reading an object makes it one, on some versions of CPython, and the collector counts it.
        self.__dict__  # noqa: B018


class Loud(Node):
    """Says when it is finalized."""

    def __del__(self) -> None:
        print("del", self.name)


class Acts(Node):
    """Does something when it is finalized."""

    def __init__(self, action: Callable[[Acts], object]) -> None:
        super().__init__()
        self.action = action

    def __del__(self) -> None:
        self.action(self)


def alive(kind: type = Node) -> int:
    return sum(type(thing) is kind for thing in gc.get_objects())


def state() -> None:
    """Print all that a program can see of the collector after a collection."""
    others = [c for c in gc.callbacks if getattr(c, "__name__", "") != "cyclescope_hook"]
    print("flags", gc.get_debug(), "garbage", len(gc.garbage), "callbacks", len(others))
    print("nodes", alive(), alive(Loud), alive(Acts), "enabled", gc.isenabled())


def others_first(callback: Callable[[str, dict[str, int]], object]) -> None:
    gc.callbacks.insert(0, callback)


# The program's own flags.


@program
def user_saves_all() -> None:
    gc.set_debug(gc.DEBUG_SAVEALL)
    Node("kept")
    print(gc.collect())
    state()
    (kept,) = [thing for thing in gc.garbage if type(thing) is Node]
    print(kept.name, kept.me is kept, kept.array.sum())
    gc.set_debug(0)
    gc.garbage.clear()
    del kept
    print(gc.collect())
    state()


@program
def user_debugs_leaks() -> None:
    gc.set_debug(gc.DEBUG_LEAK)
    Node("kept")
    print(gc.collect())
    state()
    gc.set_debug(0)


@program
def user_wants_statistics() -> None:
    gc.set_debug(gc.DEBUG_STATS | gc.DEBUG_COLLECTABLE)
    Node()
    print(gc.collect())
    state()
    gc.set_debug(0)


@program
def stderr_takes_hold_of_garbage() -> None:
    """CPython prints its statistics after it has saved the garbage: a last moment to get at it."""
    stash: list[Any] = []
    real = sys.stderr

    class Writer:
        def write(self, text: str) -> None:
            stash.extend(gc.garbage)

        def flush(self) -> None: ...

    sys.stderr = Writer()
    gc.set_debug(gc.DEBUG_STATS)
    Node("held")
    gc.collect()
    gc.set_debug(0)
    sys.stderr = real
    state_of = [(n.name, n.me is n, n.array.size) for n in stash if type(n) is Node]
    assert state_of in ([], [("held", True, 16)]), state_of
    stash.clear()
    gc.collect()
    state()


@program
def finalizer_sets_flags() -> None:
    Acts(lambda _: gc.set_debug(0))
    Node()
    gc.collect()
    state()
    Acts(lambda _: gc.set_debug(gc.DEBUG_SAVEALL | gc.DEBUG_UNCOLLECTABLE))
    Node()
    gc.collect()
    state()
    gc.set_debug(0)
    gc.garbage.clear()
    gc.collect()
    state()


# gc.garbage.


@program
def older_garbage_stays() -> None:
    older = [object(), [1], Node("older")]
    older[2].array = older  # type: ignore[attr-defined]
    gc.garbage.extend(older)
    Node()
    gc.collect()
    state()
    print([mine is theirs for mine, theirs in zip(gc.garbage, older, strict=True)])
    gc.garbage.clear()


@program
def weak_references_die_of_their_callbacks() -> None:
    """CPython counts them as collected, but they are not garbage and not saved."""
    older = [object(), Node("older")]
    gc.garbage.extend(older)
    for count in (1, 5):
        names = weakref.WeakValueDictionary({n: Node(n) for n in range(count)})
        print(gc.collect(), len(names))
        state()
    print([mine is theirs for mine, theirs in zip(gc.garbage, older, strict=True)])
    print(older[1].me is older[1], older[1].name)  # type: ignore[attr-defined]
    gc.garbage.clear()


@program
def garbage_list_is_rebound() -> None:
    real = gc.garbage
    gc.garbage = []
    for _ in range(3):
        Node()
        gc.collect()
        print(len(real))
        state()


@program
def finalizer_empties_garbage() -> None:
    gc.garbage.extend([1, 2, 3, 4, 5, 6, 7, 8])
    Acts(lambda _: gc.garbage.clear())
    Node()
    gc.collect()
    state()


@program
def finalizer_adds_to_garbage() -> None:
    gc.garbage.append("older")
    mine = Node("mine")
    weak = weakref.WeakSet([mine])
    gc.garbage.append(mine)
    del mine
    Acts(lambda _: gc.garbage.append(["from a finalizer"]))
    Acts(lambda me: gc.garbage.append(me))
    gc.collect()
    state()
    print(gc.garbage[0], gc.garbage[2], [type(thing).__name__ for thing in gc.garbage], len(weak))
    gc.garbage.clear()


@program
def legacy_finalizers() -> None:
    try:
        from _testcapi import with_tp_del  # type: ignore[import-not-found]
    except ImportError:
        print("no _testcapi")
        return

    class Legacy:
        def __init__(self, name: str) -> None:
            self.name = name
            self.me = self
            self.reached = Node(name)

        def __tp_del__(self) -> None:
            print("tp_del", self.name)

    legacy = with_tp_del(Legacy)
    gc.garbage.append("older")
    legacy("a")
    Node("free")
    legacy("b")
    print(gc.collect())
    state()
    print([getattr(thing, "name", thing) for thing in gc.garbage])
    print([type(thing.reached).__name__ for thing in gc.garbage[1:]])
    print(gc.collect())
    state()
    for thing in gc.garbage[1:]:
        thing.me = None
        thing.reached.me = None
    del gc.garbage[:], thing
    print(gc.collect())
    state()


# Other callbacks.


def aftermath() -> None:
    """Whatever stayed behind is gone after some collections, and no more comes."""
    for _ in range(3):
        Node()
        gc.collect()
    state()


@throws_callbacks_out
def callbacks_cleared_in_finalizer() -> None:
    Acts(lambda _: gc.callbacks.clear())
    Node()
    print(gc.collect())
    state()
    aftermath()


@throws_callbacks_out
def callbacks_cleared_in_weakref_callback() -> None:
    node = Node()
    weak = weakref.ref(node, lambda _: gc.callbacks.clear())
    del node
    print(gc.collect(), weak())
    state()
    aftermath()


@throws_callbacks_out
def callbacks_cleared_at_start() -> None:
    gc.callbacks.append(lambda phase, _: gc.callbacks.clear() if phase == "start" else None)
    Node()
    print(gc.collect())
    state()
    aftermath()


@throws_callbacks_out
def callbacks_cleared_at_stop_by_a_newcomer() -> None:
    def newcomer(phase: str, _: object) -> None:
        if phase == "stop":
            gc.callbacks.clear()

    Acts(lambda _: others_first(newcomer))
    Node()
    print(gc.collect())
    gc.collect()
    state()
    aftermath()


@program
def callbacks_put_aside_in_finalizer() -> None:
    saved: list[Any] = []

    def put_aside(_: Acts) -> None:
        saved.extend(gc.callbacks)
        gc.callbacks.clear()

    Acts(put_aside)
    Node()
    print(gc.collect())
    gc.callbacks[:] = saved
    saved.clear()
    aftermath()


@throws_callbacks_out
def callbacks_put_aside_for_ever() -> None:
    saved = list(gc.callbacks)
    Acts(lambda _: gc.callbacks.clear())
    Node()
    print(gc.collect())
    wait_for_flags(0)
    aftermath()
    print(all(callable(callback) for callback in saved))


@throws_callbacks_out
def callbacks_put_aside_by_garbage() -> None:
    def put_aside(me: Acts) -> None:
        me.name = list(gc.callbacks)
        gc.callbacks.clear()

    Acts(put_aside)
    Node()
    print(gc.collect())
    wait_for_flags(0)
    aftermath()


def wait_for_flags(flags: int) -> None:
    """Give the watch the time that it needs to notice."""
    deadline = time.monotonic() + 60
    while gc.get_debug() != flags and time.monotonic() < deadline:
        time.sleep(0.05)


@program
def another_callback_raises() -> None:
    def raises(phase: str, _: object) -> None:
        raise ValueError(phase)

    gc.callbacks.append(raises)
    others_first(raises)
    Node()
    print(gc.collect())
    state()
    del gc.callbacks[-1]
    gc.callbacks.remove(raises)


@program
def another_callback_comes_first() -> None:
    seen: list[Any] = []
    others_first(lambda phase, info: seen.append((phase, len(gc.garbage), dict(info))))
    for _ in range(3):
        Node()
        print(gc.collect())
    print(seen)
    state()


@program
def another_callback_empties_garbage() -> None:
    others_first(lambda phase, _: gc.garbage.clear() if phase == "stop" else None)
    for _ in range(5):
        Node()
        gc.collect()
    state()


@program
def a_newcomer_takes_hold_of_garbage() -> None:
    """It comes first at "stop" and keeps what it finds: that must stay whole, and then go."""
    stash: list[Any] = []

    def newcomer(phase: str, _: object) -> None:
        if phase == "stop":
            stash.extend(thing for thing in gc.garbage if type(thing) is Node)

    Acts(lambda _: others_first(newcomer))
    Node("held")
    Loud("not held")
    gc.collect()
    assert [(n.name, n.me is n, n.array.size) for n in stash] in ([], [("held", True, 16)]), stash
    gc.callbacks.remove(newcomer)
    stash.clear()
    gc.collect()
    state()


@program
def a_newcomer_empties_garbage() -> None:
    def newcomer(phase: str, _: object) -> None:
        if phase == "stop":
            gc.garbage.clear()
            gc.callbacks.remove(newcomer)

    Acts(lambda _: others_first(newcomer))
    Node()
    gc.collect()
    gc.collect()
    state()


# Finalizers.


def gone(name: object, _: object) -> None:
    print("weakref", name)


@program
def finalizers_in_order() -> None:
    weaks: list[Any] = []
    for i in range(50):
        node = Loud(i)
        node.array = Loud(f"{i} behind")
        weaks.append(weakref.ref(node, partial(gone, i)))
        if i % 3 == 0:
            node.me = weaks
            weaks[-1]().array.me = node
    del node
    print(gc.collect())
    state()
    print(gc.collect())
    state()


class Plain:
    """Not a container, so not the collector's: dies by its reference count alone."""

    __slots__ = ("__weakref__",)

    def __del__(self) -> None:
        print("plain", names[id(self)])


names: dict[int, object] = {}


@program
def what_garbage_holds_dies_in_order() -> None:
    for i in range(20):
        node = Node()
        node.name = plain = Plain()
        names[id(plain)] = i
        inside = Plain()
        names[id(inside)] = f"{i} in a tuple"
        node.array = (inside, node)
        del plain, inside
    del node
    print(gc.collect())
    state()


@program
def older_object_dies_with_young_garbage() -> None:
    class Older:
        def __del__(self) -> None:
            print("older")

    older = Older()
    gc.collect()
    node = Node(older)
    weak = weakref.ref(older, lambda _: print("weakref of the older"))
    del older, node
    print(gc.collect(0), weak())
    state()


@program
def finalizer_resurrects() -> None:
    saved: list[Any] = []
    Acts(saved.append)
    node = Acts(saved.append)
    node.name = Loud("behind")
    Node("not resurrected")
    del node
    print(gc.collect())
    state()
    print([(type(n).__name__, n.me is n, n.array.size) for n in saved])
    saved.clear()
    print(gc.collect())
    state()


@program
def finalizer_raises() -> None:
    def fail(_: object) -> None:
        raise ValueError("from a finalizer")

    Acts(fail)
    print(gc.collect())
    state()


@program
def finalizer_collects() -> None:
    Acts(lambda _: print("nested", gc.collect()))
    print(gc.collect())
    state()


@program
def suspended_code_is_closed() -> None:
    def generator(name: str) -> Any:
        me = yield
        try:
            yield
        finally:
            print("closed", name, me is not None)

    for name in "ab":
        suspended = generator(name)
        next(suspended)
        suspended.send(suspended)
        del suspended
    print(gc.collect())
    state()


@program
def random_garbage() -> None:
    """Graphs of every shape; finalizers and weak reference callbacks in the collector's order."""
    for seed in range(30):
        dice = random.Random(seed)
        weaks = []
        nodes: list[Any] = [
            dice.choice([Node, Loud, list, dict, set])() for _ in range(dice.randint(1, 60))
        ]
        for node in nodes:
            for _ in range(dice.randint(0, 3)):
                other = dice.choice(nodes)
                if isinstance(node, list):
                    node.append((other,) if dice.random() < 0.5 else other)
                elif isinstance(node, dict):
                    node[dice.randint(0, 9)] = other
                elif isinstance(node, set):
                    node.add(partial(id, other))
                else:
                    setattr(node, dice.choice("ab"), other)
            if isinstance(node, Node):
                node.name = seed
                weaks.append(weakref.ref(node, partial(gone, seed)))
        del node, other, nodes
        print(seed, gc.collect(dice.randint(0, 2)), len([w for w in weaks if w() is None]))
    gc.collect()
    state()


# When and where collections happen.


@program
def generations() -> None:
    gc.collect()
    for generation in (0, 1, 2, 0, 1, 2):
        Loud(generation)
        before = gc.get_stats()[generation]
        print(gc.collect(generation))
        after = gc.get_stats()[generation]
        print({key: after[key] - before[key] for key in after})
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


WATCHES: list[Any] = []


def main() -> None:
    name, watched = sys.argv[1], "--watch" in sys.argv
    gc.disable()
    if name in EARLY:
        PROGRAMS[name]()
    reports: list[Any] = []
    if watched:
        import cyclescope

        WATCHES.append(cyclescope.observe_tensor_cycles(reports.append, devices="any"))
    gc.collect()
    if name not in EARLY:
        PROGRAMS[name]()
    if watched and name not in UNWATCHED | ENDINGS | EARLY:
        WATCHES[0].flush()
        reports.clear()
        node = Node()
        node.array = numpy.zeros(1234)
        del node
        gc.collect()
        WATCHES[0].flush()
        assert any(
            buffer.shape == (1234,)
            for report in reports
            for leak in report.leaks
            for buffer in leak.buffers
        ), "the watch did not see the last leak"


if __name__ == "__main__":
    main()
