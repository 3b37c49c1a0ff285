"""Collections in a process that has no memory left."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import resource
from pathlib import Path
from typing import Any

import numpy

from extension_programs.holders import Loud, program


@program()
def exhausted() -> None:
    """Collections for which there is no memory."""
    holder = Loud("exhausted")
    holder.things = {number: [holder] for number in range(100)}
    del holder
    balloon: list[bytearray] = []
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    for size in (2**18, 2**14, 2**10):
        with contextlib.suppress(MemoryError):
            # Not a loop: how often it goes round is no business of a tracer's.
            balloon.extend(map(bytearray, itertools.repeat(size)))
    found = gc.collect()
    balloon.clear()
    resource.setrlimit(resource.RLIMIT_AS, before)
    print("with no memory", found)


@program()
def nothing_left() -> None:
    """A collection while malloc has not even a few bytes to give."""
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    library.malloc.argtypes = [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    taken = (ctypes.c_void_p * 1_000_000)()
    count = 0
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + 2**20
    kept: list[list[Any]] = [[], [], []]
    for each in kept:
        each.append(each)
        each.append(numpy.zeros(9))
    del each
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    for size in (2**20, 2**16, 2**12, 2**8, 64, 16):
        while count < len(taken) and (block := library.malloc(size)):
            taken[count] = block
            count += 1
    kept.clear()
    found = gc.collect()
    for number in range(count):
        library.free(taken[number])
    resource.setrlimit(resource.RLIMIT_AS, before)
    print("with nothing left", found)
