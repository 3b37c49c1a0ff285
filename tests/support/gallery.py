"""A page of every kind, from programs that really leak; where that takes a GPU, from its numbers.

``make gallery`` writes them, with pictures of each at three widths, light, dark and as printed.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import common
import cyclescope
from cyclescope import _native
from support.reports import leaked, repeated

MIB = 1 << 20
MANY = (
    "async_generator_on_owner",
    "autograd_context",
    "awaitable_leak",
    "bound_method_on_owner",
    "cached_property",
    "chain_on_owner",
    "class_made_at_run_time",
    "closure_captures_owner",
    "coroutine_on_owner",
    "deque_of_steps",
    "dict_cycle",
    "doubly_linked_list",
    "exception_in_local",
    "exit_stack_on_owner",
    "frame_in_local",
    "future_keeps_exception",
    "generator_on_owner",
    "lru_cache_on_instance",
    "module_hook_captures_module",
    "parent_child",
    "ring_of_stages",
    "self_reference",
    "tree_with_parents",
    "two_nodes",
)


class Item:
    """An object among very many."""

    def __init__(self, previous: Item | None) -> None:
        self.previous = previous
        self.next: Item | None = None
        self.batch: torch.Tensor | None = None
        if previous is not None:
            previous.next = self


def queue_of(objects: int) -> cyclescope.CycleReport:
    """So many items that know their neighbours, of which every hundredth has a tensor."""
    with common.collector_paused():
        last = None
        for index in range(objects):
            last = Item(last)
            if index % 100 == 0:
                last.batch = torch.zeros(MIB // 16)
        del last
        return cyclescope.find_tensor_cycles(devices="any")


class Trainer:
    """Keeps what it should not."""

    def __init__(self) -> None:
        self.net = torch.nn.Sequential(
            torch.nn.Linear(1024, 1024), torch.nn.Tanh(), torch.nn.Linear(1024, 1024)
        )
        self.optimizer = torch.optim.Adam(self.net.parameters())
        self.losses: list[torch.Tensor] = []
        self.cache: dict[str, torch.Tensor] = {}
        self.best: torch.Tensor | None = None

    def step(self) -> None:
        self.optimizer.zero_grad()
        output = self.net(torch.randn(256, 1024))
        loss = output.square().mean()
        loss.backward()
        self.optimizer.step()
        self.losses.append(self.net(torch.randn(256, 1024)).square())


def training() -> Iterator[Trainer]:
    """A trainer in a module of its own."""
    module = types.ModuleType("train")
    sys.modules["train"] = module
    module.trainer = Trainer()  # type: ignore[attr-defined]
    try:
        yield module.trainer
    finally:
        del sys.modules["train"]


def live() -> dict[str, str]:
    """The pages of the live heap of a training program."""
    pages = {}
    for trainer in training():
        for _ in range(6):
            trainer.step()
        before = cyclescope.heap()
        for _ in range(6):
            trainer.step()
        trainer.cache = {f"key-{index}": torch.zeros(MIB // 4) for index in range(10)}
        trainer.best = trainer.losses[3]
        after = cyclescope.heap()
        pages["heap"] = after.to_html()
        pages["diff"] = after.diff(before).to_html()
        held = [trainer.losses[3]]
        pages["why-alive"] = cyclescope.why_alive(trainer.losses[3]).to_html()
        del held
        pages["oom"] = out_of_memory().to_html(
            after, growth("losses_kept", 64), leaked("awaitable_leak")
        )
    return pages


def growth(name: str, steps: int) -> _native.GrowthReport:
    """What a monitor finds in a program of ``fixtures/live``."""
    sys.path.insert(0, str(Path(common.__file__).parent / "live"))
    try:
        program = __import__(name)
    finally:
        del sys.path[0]
    monitor = cyclescope.watch_growth(devices="any", every=2)
    found: list[_native.GrowthReport] = []

    def on_step() -> None:
        monitor.step()
        found[:] = [monitor._report()]

    program.pitfall("cpu", steps, on_step)
    monitor.stop()
    return found[0]


def out_of_memory() -> _native.PostMortem:
    """Of a GPU of 80 GiB."""
    gib = 1 << 30
    trace = leaked("awaitable_leak").to_text()
    found = {
        "verdict": "cycles",
        "headline": "2.0 GiB were requested; 9.5 GiB are garbage in reference cycles, and without "
        "them the request would have fitted",
        "advice": "Break the cycles, or call `gc.collect()` before the request",
        "device": "cuda:0",
        "time": 1_790_000_000.0,
        "numbers": {
            "requested": 2 * gib,
            "limit": 79 * gib,
            "free": gib // 2,
            "reserved": 78 * gib,
            "allocated": 77 * gib,
            "elsewhere": gib // 2,
            "largest_free_block": gib // 2,
            "free_in_blocks": gib,
        },
        "roles": {
            "parameters": 16 * gib,
            "gradients": 16 * gib,
            "optimizer state": 32 * gib,
            "garbage in cycles": int(9.5 * gib),
            "other tensors": 3 * gib,
        },
        "cycles": {"what": "", "bytes": int(9.5 * gib), "would_fit": True},
        "trace": trace,
        "owners": [
            {"what": "module `train` → `trainer` (Trainer) → .optimizer (Adam)", "bytes": 32 * gib},
            {"what": "module `train` → `trainer` (Trainer) → .net (Sequential)", "bytes": 16 * gib},
        ],
        "requested_at": ["train.py:72 forward", "train.py:118 step", "train.py:140 <module>"],
        "seconds": 1.4,
    }
    return _native.PostMortem.from_json(json.dumps(found))


def device_memory() -> _native.DeviceMemory:
    gib = 1 << 30
    rows = [
        ("optimizer state", 32.0, "deleting the optimizer", [("`trainer.optimizer`", 32.0)]),
        ("parameters", 16.0, "deleting the model", [("`trainer.net`", 16.0)]),
        ("gradients", 16.0, "`optimizer.zero_grad(set_to_none=True)`", []),
        (
            "garbage in reference cycles",
            9.5,
            "a garbage collection",
            [("leak 31f6a1bd7a0e9c55", 9.0)],
        ),
        ("cached by PyTorch", 1.0, "`torch.cuda.empty_cache()`", []),
        ("free between blocks", 0.75, "nothing, as long as its neighbours are in use", []),
        ("outside PyTorch", 0.5, "ending the processes that use it", []),
    ]
    found = {
        "device": "cuda:0",
        "time": 1_790_000_000.0,
        "total": 80 * gib,
        "free": int(4.25 * gib),
        "rows": [
            {
                "name": name,
                "bytes": int(size * gib),
                "freed_by": freed,
                "holders": [{"name": who, "bytes": int(part * gib)} for who, part in holders],
            }
            for name, size, freed, holders in rows
        ],
    }
    return _native.DeviceMemory.from_json(json.dumps(found))


def of_ranks(count: int) -> cyclescope.CycleReport:
    """Three leaks, the first on all ranks, the last on the last only."""
    three = [leaked(name) for name in ("awaitable_leak", "tree_with_parents", "dict_cycle")]
    reports = []
    for rank in range(count):
        for number, report in enumerate(three):
            data = json.loads(report.to_json())
            data["process"] |= {
                "rank": rank,
                "world_size": count,
                "pid": 4000 + rank,
                "host": f"node{rank // 4}",
            }
            for once in data["leaks"][0]["occurrences"]:
                once |= {"rank": rank, "pid": 4000 + rank, "host": f"node{rank // 4}"}
                once["time"] += rank * 3.0
            if number == 0 or rank == count - 1 or (number == 1 and rank % 2):
                reports.append(cyclescope.CycleReport.from_json(json.dumps(data)))
    return _native.merge_processes(reports)


def compared() -> cyclescope.CycleReport:
    """Three leaks beside those of an earlier run: one is new, one has grown, one is gone."""
    earlier = leaked("tree_with_parents", "parent_child", "dict_cycle")
    return leaked("tree_with_parents", "awaitable_leak", "parent_child").against(earlier)


REPORTS: dict[str, Callable[[], cyclescope.CycleReport]] = {
    "leak": lambda: leaked("awaitable_leak"),
    "leaks-3": lambda: leaked("awaitable_leak", "tree_with_parents", "dict_cycle"),
    "leaks-24": lambda: leaked(*MANY),
    "leaks-200": lambda: repeated(leaked(*MANY[:8]), 200),
    "objects-10000": lambda: queue_of(10_000),
    "objects-100000": lambda: queue_of(100_000),
    "ranks": lambda: of_ranks(8),
    "compared": compared,
    "clean": leaked,
}
LIVE = ("heap", "diff", "why-alive", "oom")
OTHERS: dict[str, Callable[[], Any]] = {
    "growth": lambda: growth("metrics_kept", 100),
    "memory": device_memory,
}
KINDS = (*REPORTS, *LIVE, *OTHERS)


def pages(*kinds: str) -> dict[str, str]:
    """The page of each of these kinds."""
    makers = REPORTS | OTHERS
    made = {kind: makers[kind]().to_html() for kind in kinds if kind in makers}
    if any(kind in LIVE for kind in kinds):
        made |= live()
    return {kind: made[kind] for kind in kinds}
