"""Every public name of cyclescope, used once, with what that changed in the process.

``test_off.py`` runs this in processes of its own, with ``CYCLESCOPE_OFF`` and without.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import importlib.util
import json
import logging
import os
import random  # noqa: F401 (it registers a function for forks)
import signal
import sys
import threading
import unittest
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import cyclescope as c
from cyclescope import _native

HAS_TORCH = importlib.util.find_spec("torch") is not None
if HAS_TORCH:
    import torch
    from torch.utils.viz import _cycles

Case = Callable[[], object]
CASES: dict[str, Case] = {}
EMPTY = json.dumps(
    {
        "schema": 1,
        "tool": "cyclescope",
        "time": 0.0,
        "process": {
            "host": "",
            "pid": 1,
            "rank": None,
            "python": "",
            "program": "",
            "frameworks": [],
        },
        "collection": {"trigger": "look", "generation": None, "garbage_objects": 0, "pause_us": 0},
        "leaks": [],
        "notes": [],
    }
)


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


# The classes of results, and names of types: there is nothing to call.
for name in (
    "Buffer",
    "Cost",
    "Cut",
    "DeviceMemory",
    "Devices",
    "Growth",
    "HeapBuffer",
    "HeapRow",
    "Keeper",
    "Known",
    "Leak",
    "LeakTally",
    "Library",
    "LineEdit",
    "MemoryHolder",
    "MemoryRow",
    "Patch",
    "Process",
    "Rank",
    "Relief",
    "RetentionPath",
    "RetentionStep",
    "Shared",
    "SourceLines",
    "Step",
    "StepReport",
):
    CASES[name] = lambda name=name: getattr(c, name)  # type: ignore[misc]


def watch(made: c.Watch) -> object:
    with made as entered:
        seen = [entered.leaks, entered.report, entered.flush(), entered.flush(0.5)]
    made.stop()
    return made, seen, made.leaks, made.is_running, made.report, repr(made)


@case
def warn_tensor_cycles() -> object:
    return watch(
        c.warn_tensor_cycles(devices="any", report_dir="pages", ignore=["torch"], redact=False)
    )


@case
def observe_tensor_cycles() -> object:
    return watch(c.observe_tensor_cycles(print, devices="any"))


@case
def Watch() -> object:
    # A GPU is asked for, and there may be none: that is logged where cyclescope is not off.
    return c.warn_tensor_cycles()


@case
def find_tensor_cycles() -> object:
    report = c.find_tensor_cycles(devices="any")
    outputs = (
        str(report),
        repr(report),
        report.to_text(color=False),
        report.to_html(),
        report.to_json(),
        report.to_svg(),
        report.to_dot(),
        report.to_markdown(),
        report._repr_html_(),
    )
    lists = report.leaks, report.yours, report.library
    assert not any(lists)
    assert report.bytes_held == 0
    return report, lists, outputs, report.time, report.pause_us


@case
def CycleReport() -> object:
    return c.CycleReport.from_json(EMPTY), c.CycleReport.from_json(c.find_tensor_cycles().to_json())


@case
def assert_no_tensor_cycles() -> object:
    c.assert_no_tensor_cycles(devices="any", ignore=["torch"])
    return None


@case
def forbid_tensor_cycles() -> object:
    async def in_async() -> int:
        async with c.forbid_tensor_cycles():
            return 1

    @c.forbid_tensor_cycles(devices="any")
    def decorated(number: int) -> int:
        return number

    with c.forbid_tensor_cycles() as block:
        pass
    return block, decorated(2), asyncio.run(in_async())


@case
def ForbiddenCycles() -> object:
    return c.forbid_tensor_cycles(devices=["cpu"]).__enter__()


@case
def TensorCycleError() -> object:
    return c.TensorCycleError(c.find_tensor_cycles())


@case
def NoTensorCycles() -> object:
    class Test(c.NoTensorCycles, unittest.TestCase):
        def test(self) -> None:
            self.addCleanup(print, end="")

    return unittest.defaultTestLoader.loadTestsFromTestCase(Test).run(unittest.TestResult())


@case
def step() -> object:
    return [c.step(every=100, devices="any", report_dir="pages") for _ in range(3)]


@case
def StepCollector() -> object:
    collector = c.StepCollector(every=100, devices="any", report_dir="pages")
    assert collector.every == 100
    assert collector.step() is None
    return collector


@case
def gather() -> object:
    return c.gather(None), c.gather(c.find_tensor_cycles())


@case
def current_rank() -> object:
    return c.current_rank()


@case
def why_alive() -> object:
    answer = c.why_alive(CASES, np.zeros(2), redact=False)
    outputs = str(answer), repr(answer), answer.to_html(), answer.to_json(), answer._repr_html_()
    lists = [type(each) for each in (answer.paths, answer.loops, answer.notes)]
    return answer, lists, answer.paths_omitted, answer.pause_ms, outputs


@case
def Retention() -> object:
    return c.why_alive(CASES)


@case
def heap() -> object:
    found = c.heap(redact=False)
    outputs = str(found), repr(found), found.to_html(), found.to_json(), found._repr_html_()
    lists = [type(each) for each in (found.buffers, found.top("class").rows, found.notes)]
    return found, lists, found.phases, found.time, found.pause_ms, outputs


@case
def memory() -> object:
    try:
        found = c.memory()
    except RuntimeError:  # there is no GPU
        found = _native.device_memory("cuda:0", (0, 0, 0.0), [], [])
    return found, found.device, found.in_use, str(found), repr(found), found.to_json()


@case
def Heap() -> object:
    found = c.heap()
    return found, found.objects, found.references, found.unreachable, found.working_bytes


@case
def HeapTable() -> object:
    tables = [c.heap().top(by) for by in ("owner", "class", "module", "site", "category")]
    return tables, [(str(table), table.to_json(), table.omitted) for table in tables]


@case
def HeapDiff() -> object:
    diff = c.heap().diff(c.heap())
    return diff, diff.bytes, diff.objects, str(diff), diff.to_html(), diff.to_json()


def monitor(made: c.LeakMonitor) -> object:
    with made as entered:
        news = [entered.step() for _ in range(3)] + [entered.sample()]
        outputs = entered.to_text(), entered.to_json(), entered.to_html(), entered._repr_html_()
    return made, news, made.found, made.cost, made.steps, made.every, outputs, repr(made)


@case
def watch_growth() -> object:
    return monitor(c.watch_growth(every=1, devices="any"))


@case
def LeakMonitor() -> object:
    return c.LeakMonitor(min_bytes=0)


@case
def on_oom() -> object:
    with c.on_oom("post-mortems", seconds=1.0) as waiting:
        return waiting, waiting.reports, waiting.last, waiting.errors, waiting.state


@case
def OomWatch() -> object:
    return c.on_oom()


@case
def on_signal() -> object:
    with c.on_signal("USR2", "answers", devices="any", redact=False) as waiting:
        return waiting, waiting.reports, waiting.errors, waiting.signal, waiting.is_running


@case
def SignalWatch() -> object:
    return c.on_signal("USR1")


@case
def collect_on_pressure() -> object:
    with c.collect_on_pressure(0.5) as relief:
        return relief, relief.fraction, relief.collections, relief.looks, relief.bytes_freed


@case
def PressureRelief() -> object:
    return c.collect_on_pressure()


@case
def register_framework() -> object:
    class Buffer:
        __slots__ = ("nbytes", "pointer")

    c.register_framework(Buffer, device="cuda", pointer="pointer", nbytes="nbytes")
    return None


@case
def patch_torch() -> object:
    with c.patch_torch(devices="any", report_dir="pages") as patch:
        patch.undo()
        return patch


@case
def TorchPatch() -> object:
    return c.patch_torch()


@case
def settings() -> object:
    return c.settings()


@case
def Settings() -> object:
    return c.Settings()


@case
def explain() -> object:
    return c.explain("closure-captures-owner")


@case
def to_sarif() -> object:
    return c.to_sarif(None), c.to_sarif(c.find_tensor_cycles())


@case
def to_github_annotations() -> object:
    return c.to_github_annotations(c.find_tensor_cycles())


def shape(value: object) -> object:
    """The types in a result: what is to be equal whether cyclescope is off or on."""
    if type(value) in (list, tuple):
        return [type(value).__name__, *map(shape, value)]  # type: ignore[call-overload]
    return f"{type(value).__module__}.{type(value).__qualname__}"


# What is not to change

Forks = list[dict[str, Any]]


class Handler(logging.Handler):
    """Everything that is logged, at any level."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.name}: {record.getMessage()}")


def state(log: Handler, forks: Forks) -> dict[str, object]:
    """All that cyclescope could leave in the process, in words."""
    found: dict[str, object] = {
        "callbacks of the collector": list(map(repr, gc.callbacks)),
        "flags of the collector": [gc.get_debug(), gc.isenabled(), list(gc.get_threshold())],
        "collections": [each["collections"] for each in gc.get_stats()],
        "saved garbage": len(gc.garbage),
        "threads": sorted(each.name for each in threading.enumerate()),
        "hooks": [
            repr(each)
            for each in (
                sys.excepthook,
                sys.unraisablehook,
                threading.excepthook,
                sys.gettrace(),
                sys.getprofile(),
                sys.meta_path,
            )
        ],
        "signal handlers": [repr(signal.getsignal(each)) for each in signal.valid_signals()],
        "functions for the end": atexit._ncallbacks(),
        "functions for forks": len(forks),
        "logged": list(log.lines),
        "files": sorted(str(each) for each in Path().rglob("*")),
    }
    if HAS_TORCH:
        from torch.optim import optimizer

        found["patches"] = [
            repr(_cycles.warn_tensor_cycles),
            repr(_cycles.observe_tensor_cycles),
            repr(getattr(optimizer, "_global_optimizer_post_hooks", None)),
            torch.cuda._initialized,
            len(torch.cuda._queued_calls),
        ]
    return found


class Node:
    """Garbage that a collection would free, and that holds memory."""

    def __init__(self) -> None:
        self.array = np.zeros(2**16, np.uint8)
        self.me = self


def end(handle: object) -> None:
    """Stop what runs."""
    if isinstance(handle, c.ForbiddenCycles):
        handle.__exit__(None, None, None)
    stop = getattr(handle, "stop", None) or getattr(handle, "undo", None)
    if stop is not None and not isinstance(handle, type):
        stop()


def main() -> None:
    """Print, for each name, the types of what came of it and what it changed while it ran."""
    is_off = "CYCLESCOPE_OFF" in os.environ
    forks: Forks = []
    os.register_at_fork = lambda **functions: forks.append(functions)
    log = Handler()
    logging.getLogger().addHandler(log)
    logging.getLogger("cyclescope").setLevel(logging.DEBUG)
    asyncio.run(asyncio.sleep(0))
    gc.collect()
    gc.disable()
    said: dict[str, object] = {}
    for name, use in CASES.items():
        leaked = weakref.ref(Node()) if is_off else None
        before = state(log, forks)
        result: object = None
        try:
            result = use()
            types = shape(result)
        except Exception as error:
            types = f"raised {error!r}"
        after = state(log, forks)
        changed = {key: [before[key], after[key]] for key in before if before[key] != after[key]}
        end(result)
        if is_off:
            ended = state(log, forks)
            changed |= {
                key: [before[key], ended[key]] for key in before if before[key] != ended[key]
            }
        if leaked is not None and leaked() is None:
            changed["garbage"] = ["there", "collected"]
        said[name] = {"types": types, "changed": changed}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
