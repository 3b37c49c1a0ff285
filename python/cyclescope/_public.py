"""All that users call; what it takes to import is imported when the first of it is used."""

from cyclescope._explain import explain
from cyclescope._find import assert_no_tensor_cycles, find_tensor_cycles
from cyclescope._forbid import ForbiddenCycles, TensorCycleError, forbid_tensor_cycles
from cyclescope._native import Buffer, Cut, CycleReport, Known, Leak, Library, Step
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
    observe_tensor_cycles,
    warn_tensor_cycles,
)

__all__ = [
    "Buffer",
    "Cut",
    "CycleReport",
    "Devices",
    "ForbiddenCycles",
    "Known",
    "Leak",
    "LeakTally",
    "Library",
    "NoTensorCycles",
    "Rank",
    "Settings",
    "Step",
    "StepCollector",
    "StepReport",
    "TensorCycleError",
    "TorchPatch",
    "Watch",
    "assert_no_tensor_cycles",
    "current_rank",
    "explain",
    "find_tensor_cycles",
    "forbid_tensor_cycles",
    "gather",
    "observe_tensor_cycles",
    "patch_torch",
    "settings",
    "step",
    "to_github_annotations",
    "to_sarif",
    "warn_tensor_cycles",
]
