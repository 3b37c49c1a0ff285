"""The public API. ``cyclescope/__init__.py`` imports it on first use."""

from cyclescope._devices import Devices
from cyclescope._explain import explain
from cyclescope._find import assert_no_tensor_cycles, find_tensor_cycles
from cyclescope._forbid import ForbiddenCycles, TensorCycleError, forbid_tensor_cycles
from cyclescope._frameworks import register_framework
from cyclescope._native import (
    Buffer,
    Cut,
    CycleReport,
    DeviceMemory,
    Growth,
    Heap,
    HeapBuffer,
    HeapDiff,
    HeapRow,
    HeapTable,
    Keeper,
    Known,
    Leak,
    LeakTally,
    Library,
    LineEdit,
    MemoryHolder,
    MemoryRow,
    Patch,
    Process,
    Rank,
    Retention,
    RetentionPath,
    Shared,
    SourceLines,
    Step,
    current_rank,
    heap,
    why_alive,
)
from cyclescope._patch_torch import TorchPatch, patch_torch
from cyclescope._ranks import gather
from cyclescope._results import to_github_annotations, to_sarif
from cyclescope._settings import Settings, settings
from cyclescope._step import StepCollector, StepReport, step
from cyclescope._unittest import NoTensorCycles
from cyclescope._warner import warn_tensor_cycles
from cyclescope._watch import Watch, observe_tensor_cycles

RetentionStep = Step
"""The steps of a path are those of a cycle."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cyclescope._live.device_memory import memory
    from cyclescope._live.growth import Cost, LeakMonitor, watch_growth
    from cyclescope._live.on_signal import SignalWatch, on_signal
    from cyclescope._live.oom import OomWatch, on_oom
    from cyclescope._live.pressure import PressureRelief, Relief, collect_on_pressure
else:

    def __getattr__(name):
        # The live-memory functions import more of the standard library than the watch does.
        for module, names in _LIVE.items():
            if name in names:
                from importlib import import_module

                globals()[name] = value = getattr(import_module(module), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_LIVE = {
    "cyclescope._live.device_memory": ("memory",),
    "cyclescope._live.growth": ("Cost", "LeakMonitor", "watch_growth"),
    "cyclescope._live.on_signal": ("SignalWatch", "on_signal"),
    "cyclescope._live.oom": ("OomWatch", "on_oom"),
    "cyclescope._live.pressure": ("PressureRelief", "Relief", "collect_on_pressure"),
}

__all__ = [
    "Buffer",
    "Cost",
    "Cut",
    "CycleReport",
    "DeviceMemory",
    "Devices",
    "ForbiddenCycles",
    "Growth",
    "Heap",
    "HeapBuffer",
    "HeapDiff",
    "HeapRow",
    "HeapTable",
    "Keeper",
    "Known",
    "Leak",
    "LeakMonitor",
    "LeakTally",
    "Library",
    "LineEdit",
    "MemoryHolder",
    "MemoryRow",
    "NoTensorCycles",
    "OomWatch",
    "Patch",
    "PressureRelief",
    "Process",
    "Rank",
    "Relief",
    "Retention",
    "RetentionPath",
    "RetentionStep",
    "Settings",
    "Shared",
    "SignalWatch",
    "SourceLines",
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
    "memory",
    "observe_tensor_cycles",
    "on_oom",
    "on_signal",
    "patch_torch",
    "register_framework",
    "settings",
    "step",
    "to_github_annotations",
    "to_sarif",
    "warn_tensor_cycles",
    "watch_growth",
    "why_alive",
]
