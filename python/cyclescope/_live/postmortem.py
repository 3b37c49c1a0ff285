"""Why memory ran out, as far as the numbers prove it."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from types import FrameType
from typing import Any

from cyclescope import _native
from cyclescope._live import holders, kept, reading
from cyclescope._live.allocator import Numbers, Segment, numbers, segments_of, would_fit
from cyclescope._live.growth import running_monitor
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
    history: str | None = None
    """The report of a running monitor as JSON; shown only on the page."""

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
        self._part("live tensors", lambda: self._live(heap), seconds=heap)
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
        torch = self._torch
        found = {}
        with torch._C.DisableTorchFunction():
            for each in _native.unreachable_objects():
                if issubclass(type(each), torch.Tensor):
                    read = reading.read_tensor(torch, each)
                    if read is not None and read.device == self._device:
                        found[read.pointer] = read.bytes
        return found

    def _growth(self) -> None:
        monitor = running_monitor()
        if monitor is not None:
            self.found.growth = [growth.as_dict() for growth in monitor.found]
            self.found.history = monitor.to_json()

    def _live(self, heap: float) -> None:
        torch, found = self._torch, self.found
        census = reading.take_census(torch)
        sorted_ = kept.roles(torch, census, self._device)
        in_backward = reading.is_backward_running(torch)
        if in_backward:
            found.left_out.append("autograd graphs: a backward pass is running")
        elif time.monotonic() + 3 * heap < self._deadline:
            for each in kept.collections_of_graphs(torch, census, self._device, self._deadline):
                size = sum(each.freed.values())
                found.graphs.append(
                    Finding(
                        what=f"{holders.name_of(each.holder)}: {len(each.members)} tensors with "
                        "their autograd graphs",
                        bytes=size,
                        would_fit=self._fits(each.freed),
                    )
                )
        else:
            found.left_out.append("autograd graphs: no time left")
        found.graphs.sort(key=lambda each: -each.bytes)
        self._totals(sorted_)
        working = kept.working_set(
            torch, census, self._device, self._deadline, with_graphs=not in_backward
        )
        self._is_too_big(sorted_, working)

    def _totals(self, sorted_: kept.Roles) -> None:
        totals = {
            "parameters": sum(sorted_.parameters.values()),
            "gradients": sum(sorted_.gradients.values()),
            "optimizer state": sum(sorted_.optimizer.values()),
            "module buffers": sum(sorted_.buffers.values()),
            "other tensors": sum(sorted_.other.values()),
        }
        known = self.found.numbers
        if known is not None:
            seen = sum(totals.values())
            totals["not visible from Python (autograd graphs, libraries)"] = max(
                0, known.allocated - seen
            )
        self.found.roles = {name: size for name, size in totals.items() if size}

    def _is_too_big(self, sorted_: kept.Roles, working: kept.Working) -> None:
        """Whether the request would not even fit beside what the step itself needs."""
        known = self.found.numbers
        if known is None or not self._segments:
            return
        needed = {**sorted_.persistent, **working.pointers}
        dispensable = [
            address
            for segment in self._segments
            for address, size, in_use in segment.blocks
            if in_use and address not in needed
        ]
        self._needs = sum(sorted_.persistent.values()), sum(working.pointers.values())
        self._too_big = not would_fit(known, self._segments, dispensable, self._stream)

    def _owners(self) -> None:
        if reading.is_backward_running(self._torch):
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
