"""Why memory ran out, as far as the numbers prove it."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import FrameType
from typing import Any

from cyclescope import _native
from cyclescope._live import reading
from cyclescope._live.allocator import Numbers, Segment, numbers, segments_of, would_fit
from cyclescope._live.growth import running_report
from cyclescope._live.objects import module_of
from cyclescope._live.reading import Torch
from cyclescope._live.redaction import shown_error, shown_name, shown_place
from cyclescope._live.verdict import judge

SECONDS_AN_OBJECT = 2e-6
"""Upper estimate of the time per object to inspect the heap."""

MAX_OWNERS = 8
MAX_FRAMES = 20


@dataclass
class Finding:
    """One holder of memory."""

    what: str
    bytes: int
    would_fit: bool | None = None
    """True if the allocator's map of blocks shows that the request would fit without it."""
    details: list[str] = field(default_factory=list)


@dataclass
class PostMortem:
    """The state of memory when a request failed."""

    verdict: str = "unclear"
    """``cycles``, ``kept-graphs``, ``fragmentation``, ``growth``, ``elsewhere``,
    ``batch-too-big``, or ``unclear``."""
    headline: str = ""
    advice: str = ""
    time: float = 0.0
    device: str = ""
    numbers: Numbers | None = None
    requested_at: list[str] = field(default_factory=list)
    """The Python stack of the request, innermost first."""
    cycles: Finding | None = None
    trace: str = ""
    """The leak trace of the cycles."""
    graphs: list[Finding] = field(default_factory=list)
    """Containers that keep tensors with their graphs."""
    roles: dict[str, int] = field(default_factory=dict)
    """Bytes by category; ``not visible`` is memory that only C++ holds."""
    owners: list[Finding] = field(default_factory=list)
    growth: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """The parts that were not examined, with the reason."""
    seconds: float = 0.0
    heap: _native.Heap | None = None
    """All owners, if there was time to find them; shown only on the page."""
    history: _native.GrowthReport | None = None
    """The report of a running monitor; shown only on the page."""

    def to_json(self) -> str:
        """The post-mortem as JSON (``schema`` 1)."""
        fields = asdict(replace(self, heap=None, history=None))
        del fields["heap"], fields["history"]
        return json.dumps({"schema": 1, "kind": "out-of-memory", **fields}, indent=1)

    def to_html(self) -> str:
        """A self-contained HTML page: the numbers, a treemap of the owners, growing tensors."""
        return _native.post_mortem_page(self.to_json(), self.heap, self.history)

    def _repr_html_(self) -> str:
        return _native.framed(self.to_html())


class Examiner:
    """Looks at one part after the other, for as long as there is time.

    Args:
        torch: The module.
        device: The number of the device.
        requested: Bytes asked for.
        limit: Bytes that the process may take.
        free: Bytes that the driver has.
        seconds: How long it may take.
    """

    def __init__(
        self, torch: Torch, device: int, requested: int, limit: int, free: int, seconds: float
    ) -> None:
        self._torch = torch
        self._ordinal = device
        self._request = requested, limit, free
        self._began = time.monotonic()
        self._deadline = self._began + seconds
        self._device = f"cuda:{device}"
        self._segments: list[Segment] = []
        self._stream: int | None = None
        self._needs = 0, 0
        self._too_big = False
        self.found = PostMortem(time=time.time(), device=self._device)

    def examine(self, keep: Callable[[PostMortem], None]) -> PostMortem:
        """All of it; ``keep`` is called as soon as the allocator's numbers are known, too."""
        found = self.found
        self._part("the allocator's statistics", self._numbers, seconds=0.0)
        self._judge()
        keep(found)
        objects = len(gc.get_objects())
        heap = objects * SECONDS_AN_OBJECT
        self._part("cycles", self._cycles, seconds=heap)
        self._part("growing tensors", self._growth, seconds=0.0)
        self._part("live tensors", self._live, seconds=heap)
        self._part("the owners of the largest tensors", self._owners, seconds=2 * heap)
        self._judge()
        found.seconds = time.monotonic() - self._began
        return found

    def _part(self, name: str, look: Callable[[], None], *, seconds: float) -> None:
        if time.monotonic() + seconds > self._deadline:
            self.found.left_out.append(f"{name}: no time left")
            return
        try:
            look()
        except Exception as error:
            self.found.left_out.append(f"{name}: {shown_error(error)}")

    def _numbers(self) -> None:
        requested, limit, free = self._request
        self.found.requested_at = _stack()
        try:
            self._segments = segments_of(self._torch, self._ordinal)
        except Exception as error:
            self.found.left_out.append(f"the allocator's map: {shown_error(error)}")
        stream = getattr(self._torch._C, "_cuda_getCurrentRawStream", None)
        self._stream = None if stream is None else reading.quietly(stream, self._ordinal)
        self.found.numbers = numbers(
            self._torch, self._segments, self._ordinal, requested, limit, free
        )

    def _cycles(self) -> None:
        report = _native.look([self._device])
        if not report.leaks:
            return
        pointers = {
            buffer.pointer: buffer.bytes for leak in report.leaks for buffer in leak.buffers
        }
        if any(leak.buffers_omitted for leak in report.leaks):
            pointers.update(self._unreachable())
        self.found.cycles = Finding(
            what=f"{sum(leak.count for leak in report.leaks)} groups of unreachable cycles",
            bytes=report.bytes_held,
            would_fit=self._fits(pointers),
            details=[str(leak) for leak in report.leaks[:5]],
        )
        self.found.trace = str(report)

    def _unreachable(self) -> dict[int, int]:
        """The storages of all unreachable tensors; a report lists a hundred of each leak."""
        return dict(_native.unreachable_memory(self._device))

    def _growth(self) -> None:
        self.found.history = report = running_report()
        self.found.growth = [] if report is None else [each.as_dict() for each in report.found]

    def _live(self) -> None:
        found = self.found
        known = _native.memory_in_use(self._device, self._deadline - time.monotonic())
        found.left_out += known.left_out
        found.graphs = [
            Finding(
                what=f"{owner}: {tensors} tensors with their autograd graphs",
                bytes=_bytes_of(freed),
                would_fit=self._fits(pointer for pointer, _ in freed),
            )
            for owner, tensors, freed in known.graphs
        ]
        self._totals(known)
        persistent = [
            *known.parameters,
            *known.gradients,
            *known.optimizer_state,
            *known.module_buffers,
        ]
        self._is_too_big(persistent, known.working)

    def _totals(self, known: _native.MemoryInUse) -> None:
        totals = {
            "parameters": _bytes_of(known.parameters),
            "gradients": _bytes_of(known.gradients),
            "optimizer state": _bytes_of(known.optimizer_state),
            "module buffers": _bytes_of(known.module_buffers),
            "autograd graphs": _bytes_of(known.saved),
            "other tensors": _bytes_of(known.other),
        }
        numbers = self.found.numbers
        if numbers is not None:
            seen = sum(totals.values())
            # In a backward pass autograd graphs are left alone, and are in this.
            totals["not visible from Python"] = max(0, numbers.allocated - seen)
        self.found.roles = {name: size for name, size in totals.items() if size}

    def _is_too_big(
        self, persistent: Sequence[tuple[int, int]], working: Sequence[tuple[int, int]]
    ) -> None:
        """Whether the request would not even fit beside what the step itself needs."""
        known = self.found.numbers
        if known is None or not self._segments:
            return
        needed = {pointer for pointer, _ in (*persistent, *working)}
        dispensable = [
            address
            for segment in self._segments
            for address, size, in_use in segment.blocks
            if in_use and address not in needed
        ]
        self._needs = _bytes_of(persistent), _bytes_of(working)
        self._too_big = not would_fit(known, self._segments, dispensable, self._stream)

    def _owners(self) -> None:
        if _native.is_backward_running():
            # To name an owner, autograd graphs are walked too.
            raise RuntimeError("a backward pass is running")
        self.found.heap = heap = _native.heap()
        mine = [each for each in heap.buffers if each.device == self._device]
        mine.sort(key=lambda each: -each.bytes)
        self.found.owners = [
            Finding(
                what=f"{each.owner}: {each.dtype}{list(each.shape or ())}",
                bytes=each.bytes,
                details=[each.category],
            )
            for each in mine[:MAX_OWNERS]
        ]

    def _fits(self, pointers: Iterable[int]) -> bool | None:
        known = self.found.numbers
        if known is None or not self._segments:
            return None
        return would_fit(known, self._segments, pointers, self._stream)

    def _judge(self) -> None:
        judge(self.found, too_big=self._too_big, needs=self._needs)


def _bytes_of(pieces: Iterable[tuple[int, int]]) -> int:
    return sum(size for _, size in pieces)


def _stack() -> list[str]:
    lines: list[str] = []
    current: FrameType | None = sys._getframe(1)
    while current is not None and len(lines) < MAX_FRAMES:
        if not module_of(current).startswith("cyclescope."):
            code = current.f_code
            place = f"{shown_place(code.co_filename)}:{current.f_lineno}"
            lines.append(f"{place} {shown_name(code.co_name)}")
        current = current.f_back
    return lines
