"""Programs that a watch has done harm to once. Each prints what it sees of its collections.

``python small.py NAME`` runs one bare, with ``--watch`` under the watch.
"""

from __future__ import annotations

import gc
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

PROGRAMS: dict[str, Callable[[], None]] = {}


def program(function: Callable[[], None]) -> Callable[[], None]:
    PROGRAMS[function.__name__] = function
    return function


class Thing:
    """Refers to itself, and dies with a collection only."""

    def __init__(self, name: object = None) -> None:
        self.name = name
        self.me = self


class Acts(Thing):
    def __init__(self, action: Callable[[Acts], object]) -> None:
        super().__init__()
        self.action = action

    def __del__(self) -> None:
        self.action(self)


class Told:
    """Says when it dies."""

    def __init__(self, name: object) -> None:
        self.name = name

    def __del__(self) -> None:
        print("dies", self.name)


def garbage() -> None:
    names = [getattr(it, "name", type(it).__name__) for it in gc.garbage]
    print("gc.garbage", names, "debug", gc.get_debug())


@program
def live_object_in_garbage() -> None:
    """A finalizer shows a live object in gc.garbage while entries of a weak set die."""
    live: list[Any] = [["weights"], 1, 2, 3]
    weak = weakref.WeakSet([Acts(lambda _: gc.garbage.append(live))])
    print(gc.collect(), len(weak))
    print(live, [it is live for it in gc.garbage])


@program
def entries_of_garbage() -> None:
    """What the program has in gc.garbage stays, but for what its finalizer takes out."""
    for number in range(3):
        gc.garbage.append(Thing(number))

    def exchange(_: Acts) -> None:
        del gc.garbage[2]
        gc.garbage.append("mine")

    weak = weakref.WeakSet([Thing(number) for number in range(10, 16)])
    Acts(exchange)
    print(gc.collect(), len(weak))
    garbage()


@program
def resurrected_into_garbage() -> None:
    """Each puts itself there while its entry in a weak set dies."""
    weak: weakref.WeakSet[Acts] = weakref.WeakSet()
    for number in range(3):
        one = Acts(gc.garbage.append)
        one.name = number
        weak.add(one)
        del one
    print(gc.collect(), len(weak))
    garbage()
    print([sorted(it.__dict__) for it in gc.garbage])


@program
def order_of_older_objects() -> None:
    """Objects of an older generation that only young garbage refers to."""
    older = [Told(number) for number in range(6)]
    gc.collect()
    ring = [Thing(number) for number in range(6)]
    for number, one in enumerate(ring):
        one.me = ring[number - 1]
        one.name = older[-number]
    older.clear()
    del ring, one
    print("collected", gc.collect(1))


@program
def order_of_all_that_garbage_holds() -> None:
    for generation in (0, 1, 2, 0):
        ring = [Thing(Told((generation, number))) for number in range(5)]
        for number, one in enumerate(ring):
            one.me = ring[number - 2]
            weakref.finalize(one, print, "finalized", number)
        del ring, one
        print("collected", gc.collect(generation))


@program
def finalizer_sets_saveall() -> None:
    """As somebody does who looks for leaks."""
    Acts(lambda _: gc.set_debug(gc.DEBUG_SAVEALL))
    print(gc.collect())
    garbage()
    Thing("saved")
    print(gc.collect())
    print([type(it).__name__ for it in gc.garbage], gc.get_debug())


@program
def finalizer_adds_a_flag() -> None:
    Acts(lambda _: gc.set_debug(gc.get_debug() | gc.DEBUG_UNCOLLECTABLE))
    print(gc.collect())
    for number in range(1000):
        Thing(number)
    print(gc.collect())
    garbage()


@program
def finalizer_clears_flags() -> None:
    gc.set_debug(gc.DEBUG_SAVEALL)
    Acts(lambda _: gc.set_debug(0))
    Thing("freed, as the flag goes before it is read")
    print(gc.collect())
    print([type(it).__name__ for it in gc.garbage], gc.get_debug())


@program
def flags_of_a_finalizer() -> None:
    """A finalizer sees the flags and the list as the program left them."""
    weak = weakref.ref(it := Thing(), lambda _: garbage())
    del it
    Acts(lambda _: garbage())
    print(gc.collect(), weak())


@program
def collect_while_another_thread_collects() -> None:
    """Leaks are told of in one thread; what another collects meanwhile is collected."""
    import numpy

    done = threading.Event()

    def leak() -> None:
        while not done.is_set():
            Thing(numpy.zeros(1000))
            gc.collect(0)
            time.sleep(0.002)

    thread = threading.Thread(target=leak)
    thread.start()
    missed = 0
    for _ in range(200):
        one = Thing()
        weak = weakref.ref(one)
        del one
        gc.collect()
        missed += weak() is not None
        time.sleep(0.001)
    done.set()
    thread.join()
    print("collections that freed nothing:", missed)


@program
def at_the_limit_of_recursion() -> None:
    """A collection where no more function can be called."""
    found: list[object] = []

    def descend(depth: int) -> None:
        if depth == 0:
            found.append(gc.collect())
        else:
            descend(depth - 1)

    limit = sys.getrecursionlimit()
    for depth in range(limit - 12, limit):
        Thing()
        try:
            descend(depth)
        except RecursionError:
            found.append("limit")
    print(found)


@program
def callbacks_are_called_each_once() -> None:
    seen: list[Any] = []

    def note(name: str, phase: str, info: dict[str, int]) -> None:
        seen.append((name, phase, info.copy()))

    for name in "abc":
        gc.callbacks.append(partial(note, name))
    for generation in range(3):
        Thing()
        gc.collect(generation)
    for _, _, info in seen:
        info.pop("candidates", None)
        info.pop("duration", None)
    print(seen)


def main() -> None:
    gc.disable()
    if "--watch" in sys.argv:
        import cyclescope

        class Slow(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                time.sleep(0.01)

        logger = logging.getLogger("cyclescope")
        logger.addHandler(Slow())
        logger.propagate = False
        cyclescope.observe_tensor_cycles(lambda report: time.sleep(0.01), devices="any")
        cyclescope.warn_tensor_cycles(devices="any")
    gc.collect()
    PROGRAMS[sys.argv[1]]()
    gc.set_debug(0)
    gc.garbage.clear()


if __name__ == "__main__":
    main()
