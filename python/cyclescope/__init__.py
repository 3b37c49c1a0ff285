"""Finds the reference cycles that hold GPU memory.

Call :func:`warn_tensor_cycles` at training start. Whenever the garbage collector then frees a CUDA
tensor that only a reference cycle kept alive, a warning says how much memory it held, which
reference to remove, and where the page with the details is.
"""

import os
import sys

from cyclescope._explain import explain
from cyclescope._forbid import (
    ForbiddenCycles,
    TensorCycleError,
    assert_no_tensor_cycles,
    forbid_tensor_cycles,
)
from cyclescope._live.growth import Cost, Growth, LeakMonitor, watch_growth
from cyclescope._live.oom import OomWatch, on_oom
from cyclescope._live.pressure import PressureRelief, Relief, collect_on_pressure
from cyclescope._native import (
    Buffer,
    Cut,
    CycleReport,
    Heap,
    HeapBuffer,
    HeapDiff,
    HeapRow,
    HeapTable,
    Known,
    Leak,
    Library,
    Retention,
    RetentionPath,
    RetentionStep,
    Step,
    heap,
    why_alive,
)
from cyclescope._patch_torch import TorchPatch, patch_torch
from cyclescope._ranks import Rank, current_rank, gather
from cyclescope._results import to_github_annotations, to_sarif
from cyclescope._selection import Devices
from cyclescope._settings import Settings, settings
from cyclescope._step import StepCollector, StepReport, step
from cyclescope._unittest import NoTensorCycles
from cyclescope._watch import (
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
    "Cost",
    "Cut",
    "CycleReport",
    "Devices",
    "ForbiddenCycles",
    "Growth",
    "Heap",
    "HeapBuffer",
    "HeapDiff",
    "HeapRow",
    "HeapTable",
    "Known",
    "Leak",
    "LeakMonitor",
    "LeakTally",
    "Library",
    "NoTensorCycles",
    "OomWatch",
    "PressureRelief",
    "Rank",
    "Relief",
    "Retention",
    "RetentionPath",
    "RetentionStep",
    "Settings",
    "Step",
    "StepCollector",
    "StepReport",
    "TensorCycleError",
    "TorchPatch",
    "Watch",
    "assert_no_tensor_cycles",
    "collect_on_pressure",
    "current_rank",
    "explain",
    "find_tensor_cycles",
    "forbid_tensor_cycles",
    "gather",
    "heap",
    "observe_tensor_cycles",
    "on_oom",
    "patch_torch",
    "settings",
    "step",
    "to_github_annotations",
    "to_sarif",
    "warn_tensor_cycles",
    "watch_growth",
    "why_alive",
]
