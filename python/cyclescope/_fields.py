"""What log records carry for structured logging: plain data, in the attribute ``cyclescope``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cyclescope import _native
from cyclescope._native import Buffer, CycleReport, Growth, Leak, LeakTally

MAX_TENSORS = 10
"""Maximum number of tensors in a record; the report has more."""


def of_leak(leak: Leak, report: CycleReport, page: Path | None) -> dict[str, Any]:
    """The fields of the warning of a leak."""
    file, line = _place(leak)
    cut = leak.cuts[0] if leak.cuts else None
    rank = _native.current_rank()
    return {
        "event": "leak",
        "signature": leak.signature,
        "pattern": leak.pattern,
        "summary": leak.summary,
        "advice": leak.advice,
        "bytes": leak.bytes_held,
        "bytes_freed": leak.bytes_freed,
        "count": leak.count,
        "objects": leak.objects,
        "device": leak.buffers[0].device if leak.buffers else None,
        "tensors": [_tensor(buffer) for buffer in leak.buffers[:MAX_TENSORS]],
        "tensors_omitted": max(0, len(leak.buffers) - MAX_TENSORS) + leak.buffers_omitted,
        "cut": cut and {"owner": cut.owner, "reference": cut.edge, "proven": cut.proven},
        "file": file,
        "line": line,
        "command": leak.command,
        "page": None if page is None else str(page),
        "library": leak.library and leak.library.name,
        "known": leak.known and leak.known.name,
        "importing": report.importing,
        "rank": rank and rank.rank,
        "time": report.time,
    }


def of_summary(leaks: Iterable[LeakTally]) -> dict[str, Any]:
    """The fields of the summary at the end of a program."""
    return {
        "event": "summary",
        "leaks": [
            {
                "signature": leak.signature,
                "summary": leak.summary,
                "count": leak.count,
                "bytes": leak.bytes,
                "largest": leak.largest,
                "first_seen": leak.first_seen,
                "last_seen": leak.last_seen,
                "reported": leak.reported,
            }
            for leak in leaks
        ],
    }


def of_growth(growth: Growth, event: str) -> dict[str, Any]:
    """The fields of a warning of memory that grows, or of its withdrawal."""
    return {"event": event, **growth.as_dict()}


def _tensor(buffer: Buffer) -> dict[str, Any]:
    return {
        "type": buffer.type_name,
        "dtype": buffer.dtype,
        "shape": None if buffer.shape is None else list(buffer.shape),
        "bytes": buffer.bytes,
        "device": buffer.device,
        "path": "".join(buffer.path),
    }


def _place(leak: Leak) -> tuple[str | None, int | None]:
    """The line to change, or else the nearest one that is known."""
    nearest = leak.library.your_line if leak.library is not None else None
    places = (
        nearest,
        *(cut.location for cut in leak.cuts),
        *(step.location for step in leak.cycle),
    )
    location = next((place for place in places if place is not None), None)
    if location is None:
        return None, None
    file, _, number = location.rpartition(":")
    return (file, int(number)) if file and number.isdecimal() else (location, None)
