"""Why memory ran out, as far as the numbers prove it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

from cyclescope import _native
from cyclescope._live import reading
from cyclescope._live.allocator import segments_of
from cyclescope._live.growth import running_report
from cyclescope._live.objects import module_of
from cyclescope._live.reading import Torch
from cyclescope._live.redaction import shown_error, shown_name, shown_place
from cyclescope._system import monotonic, now, tracked_objects

SECONDS_AN_OBJECT = 2e-6
"""Upper estimate of the time per object to inspect the heap."""

MAX_FRAMES = 20


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
        self._began = monotonic()
        self._deadline = self._began + seconds
        self._parts = _native.Examination(f"cuda:{device}", now())

    @property
    def found(self) -> _native.PostMortem:
        """What is known so far."""
        return self._parts.found

    def leave_out(self, part: str) -> None:
        """Take note of what is not examined, and why."""
        self._parts.leave_out(part)

    def page(self) -> str:
        """The page of what is known so far, with a treemap of the owners."""
        return self._parts.page()

    def examine(self, keep: Callable[[_native.PostMortem], None]) -> None:
        """All of it; ``keep`` is called as soon as the allocator's numbers are known, too."""
        parts = self._parts
        self._part("the allocator's statistics", self._numbers, seconds=0.0)
        parts.judge(monotonic() - self._began)
        keep(self.found)
        heap = len(tracked_objects()) * SECONDS_AN_OBJECT
        self._part("cycles", parts.cycles, seconds=heap)
        self._part("growing tensors", self._growth, seconds=0.0)
        self._part("live tensors", self._live, seconds=heap)
        self._part("the owners of the largest tensors", parts.owners, seconds=2 * heap)
        parts.judge(monotonic() - self._began)

    def _part(self, name: str, look: Callable[[], None], *, seconds: float) -> None:
        if monotonic() + seconds > self._deadline:
            self.leave_out(f"{name}: no time left")
            return
        try:
            look()
        except Exception as error:
            self.leave_out(f"{name}: {shown_error(error)}")

    def _numbers(self) -> None:
        torch, device = self._torch, self._ordinal
        self._parts.stack(_stack())
        stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        stream = None if stream is None else reading.quietly(stream, device)
        try:
            self._parts.segments(segments_of(torch, device), stream)
        except Exception as error:
            self.leave_out(f"the allocator's map: {shown_error(error)}")
        stats = torch._C._cuda_memoryStats(device)
        properties = reading.quietly(torch.cuda.get_device_properties, device)
        self._parts.numbers(
            device,
            self._request,
            reserved=stats["reserved_bytes"]["all"]["current"],
            allocated=stats["allocated_bytes"]["all"]["current"],
            total=getattr(properties, "total_memory", None),
        )

    def _growth(self) -> None:
        report = running_report()
        if report is not None:
            self._parts.growth(report)

    def _live(self) -> None:
        self._parts.live(self._deadline - monotonic())


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
