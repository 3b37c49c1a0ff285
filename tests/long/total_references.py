"""Does any reference get lost or left over? Run by ``make test-references``, on a debug build of
CPython, which counts all references there are (``sys.gettotalrefcount``; Debian: ``python3-dbg``).

The arrays are of the stand-in for CuPy, which is written in Python: NumPy's wheels are built
without that counting, so that each array that they make, and each look at its ``base``, moves the
total.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

import cyclescope
from support.standin import fake_gpu

told = 0
"""Leaks; a list of the reports would be more references."""


class Node:
    pass


def ring(held: object) -> None:
    """An object, and a list, that refer to each other."""
    node = Node()
    node.__dict__.update(around=[node], held=held)


def make_garbage(with_arrays: bool) -> None:
    for _ in range(20):
        ring(fake_gpu.array() if with_arrays else None)
    del fake_gpu._blocks[1:]


def count(report: cyclescope.CycleReport) -> None:
    global told
    told += len(report.leaks)


def look() -> None:
    count(cyclescope.find_tensor_cycles(devices="any"))


def watched() -> None:
    watch = cyclescope.observe_tensor_cycles(count, devices="any")
    gc.collect()
    watch.stop()


def drift(collect: Callable[[], object], with_arrays: bool, times: int) -> int:
    """By how much the total changes in so many collections."""
    before = sys.gettotalrefcount()
    for _ in range(times):
        make_garbage(with_arrays)
        collect()
    return int(sys.gettotalrefcount() - before)


def main() -> None:
    if not hasattr(sys, "gettotalrefcount"):
        sys.exit(f"{sys.executable} counts no references: it is no debug build of CPython.")
    fake_gpu.import_cupy()
    gc.disable()
    for with_arrays in (False, True):
        for collect in (gc.collect, look, watched):
            for times in (100, 1, 10, 100, 1000):  # the first time, caches fill
                changed = drift(collect, with_arrays, times)
            kind = "with" if with_arrays else "without"
            print(f"{collect.__name__}, 20 cycles {kind} arrays: {changed:+} in {times} times")
            # What the interpreter keeps for the next time, not one for each cycle or collection.
            assert abs(changed) < 10, changed
    assert told >= 2 * 1000
    print(f"{told} leaks told of")


if __name__ == "__main__":
    main()
