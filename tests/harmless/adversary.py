"""Programs that an adversary has found a watch to do harm to. Each prints what it sees.

``python adversary.py NAME`` runs one bare, with ``--watch`` under the watch; ``--all`` runs each in
both ways, says which differ, and ends with 1 if some do.
"""

from __future__ import annotations

import _thread
import gc
import logging
import operator
import os
import random
import signal
import subprocess
import sys
import threading
import time
import types
import warnings
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy

PROGRAMS: dict[str, Callable[[], None]] = {}
RECORD = numpy.dtype([("x", "f8"), ("y", "i4"), *[(f"f{n}", "f8") for n in range(40)]])


def program(function: Callable[[], None]) -> Callable[[], None]:
    PROGRAMS[function.__name__] = function
    return function


class Thing:
    """Refers to itself, and dies with a collection only."""

    def __init__(self, array: Any = None, **more: Any) -> None:
        self.me = self
        self.array = array
        self.__dict__.update(more)


@program
def weak_reference_among_the_garbage() -> None:
    """Without a callback: the interpreter has one such for each array, and shares it."""
    for _ in range(4):
        array = numpy.zeros(8)
        Thing(array, weak=weakref.ref(array))
        del array
        print(gc.collect())


@program
def weak_reference_from_a_finalizer() -> None:
    kept: list[Any] = []

    class Final(Thing):
        def __del__(self) -> None:
            kept.append(Thing(self.array, weak=weakref.ref(self.array)))

    for _ in range(4):
        Final(numpy.zeros(8))
        print(gc.collect(), [gc.is_tracked(it.weak) for it in kept])
        kept.clear()
        print(gc.collect())


@program
def structured_array_and_a_profiler() -> None:
    for _ in range(2):
        Thing(numpy.zeros(3, RECORD))
        called: list[str] = []

        def note(frame: FrameType, event: str, _: object, called: list[str] = called) -> None:
            called.append(frame.f_code.co_name)

        sys.setprofile(note)
        gc.collect()
        sys.setprofile(None)
        print(sorted({*called} - {"<module>", "structured_array_and_a_profiler"}))


@program
def interrupt_during_a_collection() -> None:
    """It arrives while C code runs, which then collects."""
    found = 0
    for _ in range(5):
        Thing(numpy.zeros(3, RECORD))
        try:
            tuple(map(operator.methodcaller("__call__"), (_thread.interrupt_main, gc.collect)))
        except KeyboardInterrupt:
            found += 1
    print(found)


@program
def arrays_that_another_thread_drops() -> None:
    """Through weak references to garbage, which are alive when a collection begins."""
    sys.setswitchinterval(1e-6)
    weak: list[Any] = []
    done = threading.Event()

    class Saved:
        def __init__(self) -> None:
            self.me: Any = self
            self.array = numpy.zeros(3)

        def __del__(self) -> None:
            self.me = None

    def drop() -> None:
        while not done.is_set():
            for each in list(weak):
                it = each()
                if it is not None:
                    it.__dict__.clear()
                del it

    threads = [threading.Thread(target=drop) for _ in range(2)]
    for thread in threads:
        thread.start()
    end, turn = time.monotonic() + 6, 0
    while time.monotonic() < end:
        turn += 1
        many: list[Any] = []
        for _ in range(30):
            more = [numpy.zeros(3, RECORD) for _ in range(5)]
            many.append(Thing(numpy.zeros(3, RECORD), more=more, many=many))
        found = [weakref.ref(it) for it in many]
        if turn % 40 < 20:
            Saved()
        del many, more
        weak[:] = found
        gc.collect()
        weak.clear()
    done.set()
    for thread in threads:
        thread.join()
    print("alive")


@program
def blocked_signal() -> None:
    """Blocked, in the only thread, to be waited for."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    os.kill(os.getpid(), signal.SIGUSR1)
    print(int(signal.sigwait({signal.SIGUSR1})))


@program
def all_threads_are_joined() -> None:
    threading.Thread(target=time.sleep, args=(0.1,)).start()
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join(60)
            print(thread.is_alive())


@program
def fork_of_a_single_thread() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    print([it.category.__name__ for it in caught])


@program
def module_whose_name_compares() -> None:
    class Name(str):
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            print("compared with", other)
            return False

    sys.modules[Name("cupy")] = types.ModuleType("other")
    Thing(numpy.zeros(8))
    print(gc.collect())


@program
def garbage_of_many_shapes() -> None:
    """A collection may take a few times as long, not fifty times."""
    dice = random.Random(1)
    for _ in range(3000):
        ring = [Thing() for _ in range(dice.randint(3, 12))]
        for one in ring:
            one.me = dice.choice(ring)
            one.array = [dice.choice(ring) for _ in range(dice.randint(0, 4))]
        ring[0].back, ring[-1].me = ring[-1], ring[0]  # type: ignore[attr-defined]
        ring[0].held = numpy.zeros(3)  # type: ignore[attr-defined]
    del ring, one
    started = time.perf_counter()
    gc.collect()
    print("in time:", time.perf_counter() - started < 0.5)


@program
def storages_of_tensors() -> None:
    try:
        import torch
    except ImportError:
        print("no PyTorch")
        return
    tensors = [torch.zeros(9) for _ in range(5)]
    for tensor in tensors:
        Thing(tensor[1:])
    print(gc.collect(), sum(type(it) is torch.UntypedStorage for it in gc.get_objects()))


def watch() -> None:
    import cyclescope

    logger = logging.getLogger("cyclescope")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    cyclescope.warn_tensor_cycles(devices="any")


def run(name: str, *options: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, __file__, name, *options],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        # NumPy's own threads are none of the program's.
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )
    return done.returncode, done.stdout, done.stderr[-2000:]


def main() -> None:
    if "--all" in sys.argv:
        harmed = [name for name in PROGRAMS if run(name) != run(name, "--watch")]
        print(*harmed, sep="\n")
        sys.exit(bool(harmed))
    gc.disable()
    if "--watch" in sys.argv:
        watch()
    gc.collect()
    PROGRAMS[sys.argv[1]]()


if __name__ == "__main__":
    main()
