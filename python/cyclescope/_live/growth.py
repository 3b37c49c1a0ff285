"""Finds groups of tensors that grow with the number of steps."""

from __future__ import annotations

import json
import time
from collections.abc import Hashable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cyclescope import _native, _ranks, _teller
from cyclescope._files import write_whole
from cyclescope._live import reading
from cyclescope._live.advice import PATTERNS
from cyclescope._live.allocator import line_of_block
from cyclescope._live.cohorts import NEEDED, WARM_UP, WINDOW, Cohorts, Group, is_growing
from cyclescope._live.reading import Torch
from cyclescope._live.redaction import shown_error, shown_place
from cyclescope._off import NOTE, OFF
from cyclescope._selection import Devices, StrPath
from cyclescope._settings import check_every, settings

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
    """Where the program keeps it, as :func:`cyclescope.why_alive` says it:
    ``module `train` → `history```, ``local `hidden` in `fit`, train.py:12, thread MainThread``."""
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
        self._kept: dict[tuple[str, str], int] = {}
        self._told: dict[tuple[str, str], Growth] = {}
        self._roots: dict[int, list[int]] = {}
        """The shapes of the tensors with graphs at the last sample, by the number of their node."""
        self._sampled_steps: list[int] = []
        self._allocated: list[int] = []
        """At each sample: its step, and the bytes in use by the allocator's count."""
        self._history: dict[tuple[str, str], list[tuple[int, int]]] = {}
        """Of what was told: number and bytes at each sample, those to come as well."""
        self._gradients = _native.GradientWatch()
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
        uncleared = self._gradients.step()
        news = [] if uncleared is None else self._tell([_finding(torch, uncleared)])
        if self._steps < self._next:
            return news
        if _native.is_backward_running() or reading.is_capturing(torch):
            return news  # the next step will do
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

    def _sample(self, torch: Torch) -> list[_Finding]:
        explained = any(pattern in _KEEP_GRAPHS for pattern, _ in self._told)
        mark = None if explained else self._mark
        sample = _native.sample(self._devices, mark, self._gradients)
        self._sampled_steps.append(self._steps)
        self._allocated.append(_allocated(torch))
        self._tensors.add(sample.pieces)
        self._nodes.add(("function", (address, 0), 0) for address in sample.functions)
        due = [
            (key[2], group, _youngest(self._tensors, group))
            for key, group in self._due(self._tensors)
            if key[2] == "graph" or _grown(group) >= self._min_bytes
        ]
        due += [
            ("function", group, _youngest(self._nodes, group))
            for _, group in self._due(self._nodes)
        ]
        findings: list[_Finding] = []
        if due:
            found = _native.diagnose([(kind, names) for kind, _, names in due])
            for each, (_, group, _) in zip(found, due, strict=True):
                findings += [] if each is None else [_finding(torch, each, group)]
        if not explained and not any(each.pattern in _KEEP_GRAPHS for each in findings):
            findings += self._states_that_grow(torch, sample)
        findings += self._kept_on_modules(sample)
        self._mark = sample.mark
        return findings

    def _due(self, cohorts: Cohorts) -> Iterable[tuple[Any, Group]]:
        """The groups that grow, but not those that were looked at a short while ago."""
        for key, group in cohorts.growing().items():
            looked_at = self._looked_at.get(key)
            if looked_at is None or cohorts.samples - looked_at >= WINDOW:
                self._looked_at[key] = cohorts.samples
                yield key, group

    def _states_that_grow(self, torch: Torch, sample: _native.Sample) -> Iterable[_Finding]:
        """Tensors that are few, with graphs that reach further back at each sample."""
        if sample.older is None:
            return
        crossed = set(sample.crossed)
        states = [shape for number, shape in self._roots.items() if number in crossed]
        self._roots = {number: shape for _, number, shape in sample.roots}
        self._old_nodes.append(sample.older)
        if len(self._old_nodes) <= WARM_UP + WINDOW:
            return
        if is_growing(self._old_nodes[-WINDOW - 1 :]):
            self._old_nodes.clear()
            roots = [(name, shape in states) for name, _, shape in sample.roots]
            found = _native.diagnose_state(roots, self._mark)
            if found is not None:
                yield _finding(torch, found)

    def _kept_on_modules(self, sample: _native.Sample) -> Iterable[_Finding]:
        found = {each[0]: each for each in sample.kept_on_modules}
        self._kept = {key: self._kept.get(key, 0) + 1 for key in found}
        news = [each for key, each in found.items() if self._kept[key] == PERSISTENT]
        if not news:
            return
        owners = _native.owners_of([addresses for _, addresses, _, _ in news])
        for owner, (_, _, size, example) in zip(owners, news, strict=True):
            if owner is not None:
                yield _Finding("activation-on-module", owner, bytes=size, example=example)

    def _tell(self, findings: Iterable[_Finding]) -> list[Growth]:
        news = []
        for each in findings:
            key = each.pattern, each.owner
            if key in self._told:
                continue
            pattern = PATTERNS[each.pattern]
            # The names of variables are marked as such already, those of classes are not.
            owner = each.owner if "`" in each.owner else f"`{each.owner}`"
            summary = pattern.what.format(owner=owner, hook=f"`{each.hook}`")
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


@dataclass(frozen=True)
class _Finding:
    """What there is to tell, if it was not told before."""

    pattern: str
    owner: str
    evidence: str = ""
    hook: str = ""
    tensors: int = 1
    bytes: int = 0
    bytes_per_sample: float = 0.0
    example: str = ""
    allocated_at: str | None = None
    history: list[tuple[int, int]] | None = None
    """Number and bytes of the group at each sample, in the group's own list, which goes on."""


def _finding(torch: Torch, found: _native.Diagnosis, group: Group | None = None) -> _Finding:
    line = line_of_block(torch, found.device, found.pointer)
    tensors, size, rate = found.tensors, found.bytes, float(found.bytes_per_sample)
    if group is not None:
        tensors, size = len(group.born), sum(group.bytes.values())
        window = group.totals[-WINDOW - 1 :]
        rate = (window[-1][1] - window[0][1]) / max(1, len(window) - 1)
    return _Finding(
        pattern=found.pattern,
        owner=found.owner,
        evidence=found.evidence,
        hook=found.hook,
        tensors=tensors,
        bytes=size,
        bytes_per_sample=rate,
        example=found.example,
        allocated_at=found.site if line is None else shown_place(line),
        history=None if group is None else group.totals,
    )


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


def _grown(group: Group) -> int:
    """By how many bytes a group has grown."""
    return group.totals[-1][1] - min(size for _, size in group.totals[-WINDOW - 1 :])


def _youngest(cohorts: Cohorts, group: Group) -> list[Any]:
    """A few members of several ages, the youngest first."""
    ages = sorted(cohorts.survivors(group).items(), reverse=True)
    return [name for _, names in ages[:8] for name in names[:3]]


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
