"""The stack that allocated a tensor, from PyTorch's memory history.

When recording, PyTorch's allocator keeps an entry with a stack for each allocation and each free.
So the stack of a tensor can be looked up after the tensor is gone, on the reporting thread: its
memory was freed during the collection, and the entry before that free is its allocation.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

from cyclescope import _log, _native
from cyclescope._imported import imported_torch
from cyclescope._live.imports import Waiting
from cyclescope._off import OFF

MAX_ENTRIES = 100_000
"""How many of the latest allocations and frees PyTorch keeps when cyclescope starts recording."""

CLOCK_ERROR_US = 1_000
"""Maximum difference between PyTorch's clock, a converted cycle counter, and the system's."""

_users: set[History] = set()
_recording = False
_said: set[str] = set()


class History:
    """The memory history, for the lifetime of one watch.

    PyTorch records from now on, or once the program has imported it and initialised CUDA. If it
    cannot, the reason is logged. CUDA is not initialised, because a process that has done so can no
    longer fork workers that use it.
    """

    def __init__(self) -> None:
        self._explained: set[str] = set()
        self._ended = False
        # Under `cyclescope run`, the program has not imported it yet.
        self._waiting = Waiting(self._begin)

    def _begin(self, torch: ModuleType) -> None:
        reason = _obstacle(torch)
        if reason is None:
            _users.add(self)
            if self._ended:  # On another thread, meanwhile.
                _users.discard(self)
                return
            try:
                torch.cuda._lazy_call(_begin)
            except Exception as error:
                _users.discard(self)
                reason = str(error)
        if reason is not None:
            _say(f"record_history=True has no effect: {reason}")

    def explain(self, report: _native.CycleReport) -> _native.CycleReport:
        """Add allocation stacks to a report, for leaks that occur for the first time."""
        new = [leak for leak in report.leaks if leak.signature not in self._explained]
        self._explained.update(leak.signature for leak in new)
        buffers = [
            buffer for leak in new for buffer in leak.buffers if _ordinal(buffer.device) >= 0
        ]
        snapshot = _snapshot() if buffers else None
        if snapshot is None:
            return report
        end = report.time * 1e6
        stacks = {}
        for buffer in buffers:
            traces = snapshot["device_traces"]
            ordinal = _ordinal(buffer.device)
            entries = traces[ordinal] if ordinal < len(traces) else []
            began = end - report.pause_us
            frames = frames_of(entries, buffer.pointer, buffer.bytes, began, end)
            if frames:
                stacks[buffer.device, buffer.pointer] = frames
        return _native.with_allocations(report, stacks) if stacks else report

    def stop(self) -> None:
        """Stop recording if cyclescope started it and no other watch uses it."""
        global _recording
        self._ended = True
        self._waiting.stop()
        _users.discard(self)
        torch = imported_torch()
        if not _users and _recording and torch is not None:
            _recording = False
            try:
                torch.cuda.memory._record_memory_history(None)
            except Exception as error:
                _say(f"PyTorch's memory history could not be stopped: {error}")


def frames_of(
    entries: list[dict[str, Any]], pointer: int, size: int, began: float, end: float
) -> list[tuple[str, int, str]]:
    """The stack that allocated the memory at ``pointer``; empty if that is not certain.

    Args:
        entries: The trace of one device from ``torch.cuda.memory._snapshot``, oldest first.
        pointer: Address of the first byte.
        size: Size in bytes.
        began: When the inspection of the garbage began, in microseconds since 1970.
        end: When all of the garbage was destroyed.
    """
    earliest, latest = began - CLOCK_ERROR_US, end + CLOCK_ERROR_US
    # What was inspected had been allocated before.
    newest = began + CLOCK_ERROR_US
    current: dict[str, Any] | None = None
    freed: list[dict[str, Any] | None] = []
    for entry in entries:
        action = entry.get("action")
        if action == "alloc":
            if entry["addr"] <= pointer and pointer + size <= entry["addr"] + entry["size"]:
                current = entry
            elif pointer <= entry["addr"] < pointer + size:
                # A smaller allocation starts there now, so the earlier one is gone.
                current = None
        elif (
            action == "free_requested" and entry["addr"] <= pointer < entry["addr"] + entry["size"]
        ):
            allocated = 0 if current is None else current.get("time_us", 0)
            if earliest <= entry.get("time_us", 0) <= latest and allocated <= newest:
                freed.append(current)
            current = None
    # Without a free in that interval, the memory may still be allocated.
    if not freed and current is not None and 0 < current.get("time_us", 0) <= began:
        freed.append(current)
    stacks = [[] if entry is None else _frames(entry) for entry in freed]
    # Freed more than once within the clock error: certain only if all stacks are equal.
    return stacks[0] if stacks and all(stack == stacks[0] for stack in stacks) else []


def _frames(entry: dict[str, Any]) -> list[tuple[str, int, str]]:
    return [
        (str(frame["filename"]), max(0, int(frame["line"])), str(frame["name"]))
        for frame in entry.get("frames", [])
        # C++ frames have no file.
        if frame["filename"] not in ("", "??")
    ]


def _ordinal(device: str) -> int:
    kind, _, number = device.partition(":")
    return int(number) if kind == "cuda" and number.isdecimal() else -1


def _obstacle(torch: ModuleType) -> str | None:
    """Why PyTorch cannot record, as a sentence; None if it can."""
    if not hasattr(getattr(torch, "_C", None), "_cuda_record_memory_history"):
        return "this PyTorch is built without CUDA, or is too old to record memory history."
    if torch.version.hip is None and not _native.cuda_driver_present():
        return "there is no CUDA driver on this machine."
    return None


def _begin() -> None:
    """Start recording. Never raises, because PyTorch may call it while it initialises CUDA."""
    global _recording
    torch = imported_torch()
    if not _users or _recording or torch is None:
        return
    try:
        # Do not change a recording that the program itself has started.
        if not torch._C._cuda_isHistoryEnabled():
            torch.cuda.memory._record_memory_history(
                "all", context="alloc", stacks="python", max_entries=MAX_ENTRIES
            )
            _recording = True
    except Exception as error:
        _say(f"PyTorch's memory history could not be started: {error}")


def _snapshot() -> dict[str, Any] | None:
    torch = imported_torch()
    try:
        if torch is None or not torch.cuda.is_initialized() or torch._C._cuda_isInBadFork():
            return None
        snapshot: dict[str, Any] = torch.cuda.memory._snapshot()
    except Exception as error:
        _say(f"PyTorch's memory history could not be read: {error}")
        return None
    return snapshot


def _say(sentence: str) -> None:
    if sentence not in _said:
        _said.add(sentence)
        _log.warning("%s", sentence)


def _after_fork_in_child() -> None:
    global _recording
    _users.clear()
    _recording = False


if not OFF and hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
