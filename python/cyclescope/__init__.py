"""Finds the reference cycles that hold GPU memory.

Call :func:`warn_tensor_cycles` at training start. Whenever the garbage collector then frees a CUDA
tensor that only a reference cycle kept alive, a warning says how much memory it held, which
reference to remove, and where the page with the details is.
"""

import os
import sys

from cyclescope._explain import explain
from cyclescope._native import Buffer, Cut, CycleReport, Known, Leak, Library, Step
from cyclescope._watch import (
    Devices,
    LeakTally,
    Watch,
    find_tensor_cycles,
    observe_tensor_cycles,
    warn_tensor_cycles,
)

# Where the interpreter was told to trace allocations from its start, it does so without importing
# the module that answers for them; everywhere else the program has imported it.
if "tracemalloc" in sys._xoptions or os.environ.get("PYTHONTRACEMALLOC"):
    import _tracemalloc  # noqa: F401

__all__ = [
    "Buffer",
    "Cut",
    "CycleReport",
    "Devices",
    "Known",
    "Leak",
    "LeakTally",
    "Library",
    "Step",
    "Watch",
    "explain",
    "find_tensor_cycles",
    "observe_tensor_cycles",
    "warn_tensor_cycles",
]
