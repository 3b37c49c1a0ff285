"""Finds groups of tensors that grow with the number of steps."""

from __future__ import annotations

import json
import time
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cyclescope import _native, _ranks, _teller
from cyclescope._files import write_whole
from cyclescope._live import reading
from cyclescope._live.advice import PATTERNS
from cyclescope._live.cohorts import NEEDED, WARM_UP, WINDOW, Cohorts, Group, is_growing
from cyclescope._live.diagnosis import Diagnosis, diagnose_group, diagnose_state
from cyclescope._live.gradients import Gradients, activations_on_modules
from cyclescope._live.graphs import sequence_now, walk
from cyclescope._live.reading import Census, LiveTensor, Torch
from cyclescope._live.redaction import shown_error
from cyclescope._off import NOTE, OFF
from cyclescope._selection import Devices, StrPath
from cyclescope._settings import check_every, settings

MAX_NODES = 50_000
GRAPH_SECONDS = 0.05
"""At most so many nodes are walked in a sample, for so long."""

MAX_SHARE = 0.02
"""The part of the program's time that samples may take."""

PERSISTENT = 3
"""What is kept from one step to the next is told when so many samples in a row have seen it."""

MIB = 2**20

_KEEP_GRAPHS = {
    "kept-with-graph",
    "evaluation-with-graph",
    "graph-retained",
    "grad-fn-kept",
    "activations-kept-by-hook",
}
"""Where these are found, that graphs grow is explained."""


@dataclass(frozen=True)
class Growth:
    """A growing group of tensors."""

    pattern: str
    """``kept-with-graph``, ``evaluation-with-graph``, ``graph-retained``, ``state-not-detached``,
    ``gradients-never-cleared``, ``activations-kept-by-hook``, ``activation-on-module``,
    ``grad-fn-kept``, ``model-copies`` or ``container-grows``."""
    owner: str
    """Where the program keeps it: ``train.history``, ``local 'hidden' in fit (train.py:12)``."""
    summary: str
    """What happens, in one line."""
    advice: str
    """What to change."""
    step: int
    """The step at which the growth was detected."""
    tensors: int
    """Number of tensors of this kind: same device and dtype, all with or all without a graph."""
    bytes: int
    """Bytes of their storages, without the memory that their graphs keep."""
    bytes_per_step: float
    """Growth per step; for ``state-not-detached``, the bytes that the graph of one step keeps."""
    example: str
    """One of the tensors: ``float32[64, 128] on cuda:0``."""
    allocated_at: str | None
    """``file:line`` that allocated it, if ``tracemalloc`` or PyTorch's history recorded it."""

    def __str__(self) -> str:
        rate = self.bytes_per_step / MIB
        grows = f", {rate:,.2f} MiB per step" if self.bytes_per_step > 0 else ""
        where = f" · allocated at {self.allocated_at}" if self.allocated_at else ""
        return (
            f"step {self.step}: {self.summary}: {self.tensors} tensors such as {self.example}, "
            f"{self.bytes / MIB:,.1f} MiB{grows}{where}. {self.advice} [{self.pattern}]"
        )

    def as_dict(self) -> dict[str, Any]:
        """The fields as a dictionary, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Cost:
    """The cost of a :class:`LeakMonitor` itself."""

    samples: int
    """Number of samples taken."""
    seconds: float
    """Time spent on samples."""
    share: float
    """That time as a fraction of the time since the monitor was started."""
    every: int
    """Current number of steps between samples; it is raised if samples take too long."""


class LeakMonitor:
    """Finds groups of live tensors that grow with the number of steps.

    Call :meth:`step` at the end of every training step. Every N steps, the monitor samples the
    live tensors and their autograd graphs. A group that has grown over ten samples and still grows
    is reported once, on the logger ``cyclescope``. Not reported are tensors that exist from the
    first samples on (parameters, optimizer state), are replaced in each step, or stop growing (a
    full cache, a window of fixed length, an averaged copy of the model). A cache that takes longer
    than ten samples to fill looks like a leak and is reported.

    Args:
        every: Number of steps between samples; by default 10, or as in the :func:`settings`. With
            two samples for the warm-up, a leak is reported after about ``13 * every`` steps.
        devices: Which memory to check; see :func:`warn_tensor_cycles`.
        min_bytes: Minimum growth of a group of tensors without graphs, in bytes.
        max_share: Maximum fraction of the program's time that samples may take. If they would take
            more, the monitor samples less often.
        redact: See :func:`warn_tensor_cycles`.

    Raises:
        ValueError: If an argument or a setting is invalid.
    """

    def __init__(
        self,
        *,
        every: int | None = None,
        devices: Devices | None = None,
        min_bytes: int = MIB,
        max_share: float = MAX_SHARE,
        redact: bool = False,
    ) -> None:
        configured = settings()
        if redact:
            _native.redact()
        self.every = configured.growth_every if every is None else check_every(every)
        """Number of steps between samples."""
        self._devices = configured.devices_or(devices, "cuda")
        self._min_bytes = min_bytes
        self._max_share = max_share
        self._tensors = Cohorts()
        self._nodes = Cohorts()
        self._looked_at: dict[Hashable, int] = {}
        self._old_nodes: list[int] = []
        self._kept: dict[str, int] = {}
        self._told: dict[tuple[str, str], Growth] = {}
        self._roots: dict[int, tuple[int, ...]] = {}
        """The shapes of the tensors with graphs at the last sample, by the number of their node."""
        self._sampled_steps: list[int] = []
        self._allocated: list[int] = []
        """At each sample: its step, and the bytes in use by the allocator's count."""
        self._history: dict[tuple[str, str], list[tuple[int, int]]] = {}
        """Of what was told: number and bytes at each sample, those to come as well."""
        self._gradients = Gradients()
        self._mark = 0
        """The number of the first autograd node that was made after the last sample."""
        self._steps = 0
        self._next = self.every
        self._began = time.monotonic()
        self._sampled_at = self._began
        self._seconds = 0.0
        self._samples = 0
        self._running = not OFF
        self._busy = False
        _running.append(self)

    @property
    def found(self) -> list[Growth]:
        """The growing groups, as they were when first reported."""
        return list(self._told.values())

    @property
    def cost(self) -> Cost:
        """The cost of the monitor so far."""
        elapsed = max(time.monotonic() - self._began, 1e-9)
        return Cost(self._samples, self._seconds, self._seconds / elapsed, self.every)

    @property
    def steps(self) -> int:
        """Number of steps so far."""
        return self._steps

    def step(self) -> list[Growth]:
        """Count a step and, every N steps, take a sample. Returns newly reported groups."""
        # A collection or a pending call in the middle of a step may come here again.
        if not self._running or self._busy:
            return []
        self._busy = True
        try:
            return self._step()
        finally:
            self._busy = False

    def _step(self) -> list[Growth]:
        self._steps += 1
        torch = reading.imported_torch()
        if torch is None:
            return []
        news = self._tell(self._gradients.step(torch, self._steps))
        if self._steps < self._next:
            return news
        if reading.is_backward_running(torch) or reading.is_capturing(torch):
            return news  # try again in the next step
        started = time.monotonic()
        try:
            news += self._tell(self._sample(torch))
        except Exception as error:
            self._running = False
            _teller.logger.error("cyclescope: watch_growth stopped: %s", shown_error(error))
        self._pace(started)
        return news

    def sample(self) -> list[Growth]:
        """Count a step and take a sample now. Otherwise like :meth:`step`."""
        self._next = 0
        return self.step()

    def to_text(self) -> str:
        """The growing groups, one paragraph each, and the number of samples."""
        early = self._samples < NEEDED
        nothing = f"Too early to tell: {NEEDED} samples are needed." if early else "Nothing grows."
        lines = [str(growth) for growth in self.found] or [NOTE or nothing]
        return "\n".join([*lines, f"{self._samples} samples in {self._steps} steps", ""])

    def to_json(self) -> str:
        """The growing groups and their size at each sample, as JSON (``schema`` 1)."""
        return json.dumps(self._as_dict())

    def to_html(self) -> str:
        """A self-contained HTML page: the growing groups, the advice, and their size by step."""
        return _native.growth_page(self.to_json())

    def _repr_html_(self) -> str:
        return _native.framed(self.to_html())

    def write(self, folder: StrPath) -> Path:
        """Write the report to a folder as HTML, text and JSON, and return the HTML file.

        Raises:
            OSError: If the folder is not writable.
        """
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        # Host names may contain dots, which `with_suffix` would take for a suffix.
        stem = f"growth-{_ranks.stem()}".replace(".", "_")
        page, number = path / f"{stem}.html", 0
        while page.exists():
            number += 1
            page = path / f"{stem}-{number}.html"
        write_whole(page.with_suffix(".json"), self.to_json())
        write_whole(page.with_suffix(".txt"), self.to_text())
        write_whole(page, self.to_html())
        return page

    def stop(self) -> None:
        """Stop the monitor. The results stay in :attr:`found`."""
        self._running = False
        if self in _running:
            _running.remove(self)

    def __enter__(self) -> LeakMonitor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<LeakMonitor step {self._steps}, {len(self._told)} found>"

    def _as_dict(self) -> dict[str, Any]:
        cost = self.cost
        totals = [group.totals for group in self._tensors.groups.values()]
        everything = [
            tuple(map(sum, zip(*each, strict=True))) for each in zip(*totals, strict=False)
        ]
        return {
            "schema": 1,
            "kind": "growth",
            "time": time.time(),
            "steps": self._steps,
            "every": self.every,
            "samples": cost.samples,
            "needed": NEEDED,
            "seconds": cost.seconds,
            "share": cost.share,
            "found": [
                {**growth.as_dict(), "history": self._at_steps(self._history.get(key, []))}
                for key, growth in self._told.items()
            ],
            "all": self._at_steps(everything),
            "allocated": self._at_steps([(0, size) for size in self._allocated if size]),
            "notes": [] if NOTE is None else [NOTE],
        }

    def _at_steps(self, values: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Each value with the step of its sample in front."""
        return [(step, *value) for step, value in zip(self._sampled_steps, values, strict=False)]

    def _pace(self, started: float) -> None:
        ended = time.monotonic()
        self._seconds += ended - started
        self._samples += 1
        if self._samples > 1 and ended - started > self._max_share * (ended - self._sampled_at):
            self.every *= 2
        self._sampled_at = ended
        self._next = self._steps + self.every

    def _sample(self, torch: Torch) -> list[Diagnosis]:
        census = reading.take_census(torch)
        tensors = [each for each in census.tensors if self._is_wanted(each.device)]
        self._sampled_steps.append(self._steps)
        self._allocated.append(_allocated(torch))
        self._tensors.add(_by_kind(tensors))
        self._nodes.add(("node", id(node), 0) for node in census.nodes)
        diagnoses: list[Diagnosis] = []
        by_name: dict[Hashable, Any] = {_name(each): each for each in tensors}
        for group in self._due(self._tensors):
            diagnoses += self._diagnose(torch, census, group, by_name)
        for group in self._due(self._nodes):
            members = _youngest(
                self._nodes, group, {id(node): index for index, node in enumerate(census.nodes)}
            )
            chosen = [census.nodes[index] for index in members]
            found = diagnose_group(torch, census, "node", chosen, group) if chosen else None
            diagnoses += [] if found is None else [found]
        blamed = {name for each in diagnoses for name in each.members}
        patterns = {each.pattern for each in diagnoses} | {name for name, _ in self._told}
        if not patterns & _KEEP_GRAPHS:
            diagnoses += self._states_that_grow(torch, tensors, blamed)
        diagnoses += self._kept_on_modules(torch, census)
        self._gradients.watch(torch, census.modules)
        self._mark = sequence_now(torch)
        return diagnoses

    def _is_wanted(self, device: str) -> bool:
        return any(
            name == "any" or device == name or device.partition(":")[0] == name
            for name in self._devices
        )

    def _due(self, cohorts: Cohorts) -> list[Group]:
        """The groups that grow, but not those that were looked at a short while ago."""
        due = []
        for key, group in cohorts.growing().items():
            looked_at = self._looked_at.get(key)
            if looked_at is None or cohorts.samples - looked_at >= WINDOW:
                self._looked_at[key] = cohorts.samples
                due.append(group)
        return due

    def _diagnose(
        self, torch: Torch, census: Census, group: Group, by_name: dict[Hashable, Any]
    ) -> Iterable[Diagnosis]:
        members = _youngest(self._tensors, group, by_name)
        if not members:
            return
        kind = _kind(members[0])
        grown = group.totals[-1][1] - min(size for _, size in group.totals[-WINDOW - 1 :])
        if kind == "graph" or grown >= self._min_bytes:
            found = diagnose_group(torch, census, kind, members, group)
            if found is not None:
                yield found

    def _states_that_grow(
        self, torch: Torch, tensors: list[LiveTensor], blamed: set[tuple[int, int]]
    ) -> Iterable[Diagnosis]:
        """Tensors that are few, with graphs that reach further back at each sample."""
        roots = [each for each in tensors if each.has_graph and _name(each) not in blamed]
        if len(roots) > MAX_NODES // 10:
            return
        nodes = [torch._C.TensorBase.grad_fn.__get__(each.tensor) for each in roots]
        graph = walk(nodes, limit=MAX_NODES, deadline=time.monotonic() + GRAPH_SECONDS)
        crossed = graph.crossings(self._mark)
        states = {shape for number, shape in self._roots.items() if number in crossed}
        self._roots = {
            node._sequence_nr(): each.shape for node, each in zip(nodes, roots, strict=True)
        }
        self._old_nodes.append(graph.older_than(self._mark))
        if len(self._old_nodes) <= WARM_UP + WINDOW:
            return
        if is_growing(self._old_nodes[-WINDOW - 1 :]):
            self._old_nodes.clear()
            found = diagnose_state(torch, roots, self._mark, states)
            if found is not None:
                yield found

    def _kept_on_modules(self, torch: Torch, census: Census) -> Iterable[Diagnosis]:
        found = {each.owner: each for each in activations_on_modules(torch, census.modules)}
        self._kept = {owner: self._kept.get(owner, 0) + 1 for owner in found}
        return [each for owner, each in found.items() if self._kept[owner] == PERSISTENT]

    def _tell(self, diagnoses: Iterable[Diagnosis]) -> list[Growth]:
        news = []
        for each in diagnoses:
            key = each.pattern, each.owner
            if key in self._told:
                continue
            pattern = PATTERNS[each.pattern]
            summary = pattern.what.format(owner=f"`{each.owner}`", hook=f"`{each.hook}`")
            growth = Growth(
                pattern=each.pattern,
                owner=each.owner,
                summary=summary + (f" ({each.evidence})" if each.evidence else ""),
                advice=pattern.advice,
                step=self._steps,
                tensors=each.tensors,
                bytes=each.bytes,
                bytes_per_step=each.bytes_per_sample / self.every,
                example=each.example,
                allocated_at=each.allocated_at,
            )
            self._told[key] = growth
            if each.history is not None:
                self._history[key] = each.history
            news.append(growth)
            _teller.logger.warning("%s", growth)
        return news


def _by_kind(tensors: Iterable[LiveTensor]) -> Iterable[tuple[Hashable, Hashable, int]]:
    """Each storage once, with the kind of the first tensor on it that has a graph, if any."""
    chosen: dict[tuple[str, int], LiveTensor] = {}
    for each in tensors:
        known = chosen.get(each.storage)
        if known is None or (each.has_graph and not known.has_graph):
            chosen[each.storage] = each
    for each in chosen.values():
        yield (each.device, each.dtype, _kind(each)), _name(each), each.bytes


def _allocated(torch: Torch) -> int:
    """Bytes in use on all GPUs by PyTorch's count; 0 if it uses none, or does not say."""
    if not reading.is_using_cuda(torch):
        return 0
    stats = (
        reading.quietly(torch._C._cuda_memoryStats, device) or {}
        for device in range(torch.cuda.device_count())
    )
    used = (each.get("allocated_bytes", {}).get("all", {}).get("current", 0) for each in stats)
    return sum(map(int, used))


def _kind(each: LiveTensor) -> str:
    """What autograd does with a tensor, which the patterns go by.

    Not what it is for, as the categories of :func:`cyclescope.heap` say: a loss, a metric and an
    output that are kept with their graphs are one mistake.
    """
    return "graph" if each.has_graph else "parameter" if each.is_parameter else "plain"


def _youngest(cohorts: Cohorts, group: Group, by_name: Mapping[Any, Any]) -> list[Any]:
    """A few members of several ages, the youngest first."""
    ages = sorted(cohorts.survivors(group).items(), reverse=True)
    names = [name for _, names in ages[:8] for name in names[:3]]
    return [by_name[name] for name in names if name in by_name]


def _name(each: LiveTensor) -> tuple[int, int]:
    return id(each.tensor), each.pointer


_running: list[LeakMonitor] = []


def running_monitor() -> LeakMonitor | None:
    """A running monitor, if there is one."""
    return _running[-1] if _running else None


def watch_growth(
    *,
    every: int | None = None,
    devices: Devices | None = None,
    min_bytes: int = MIB,
    redact: bool = False,
) -> LeakMonitor:
    """Start a :class:`LeakMonitor`. Call its ``step()`` at the end of every training step."""
    return LeakMonitor(every=every, devices=devices, min_bytes=min_bytes, redact=redact)
