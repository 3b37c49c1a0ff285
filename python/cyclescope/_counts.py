"""Reports with the counts of a whole run.

What happens many times is reported in full once, and counted from then on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from cyclescope import _native
from cyclescope._native import CycleReport


def nothing_found() -> CycleReport:
    """A report without leaks, which says all the same which process it is of."""
    return _native.select(_native.look(["any"], [], 0), [])


@dataclass(frozen=True)
class Counts:
    """How often a leak was seen, its objects, and what it held, added up."""

    count: int = 0
    objects: int = 0
    bytes_held: int = 0

    def plus(self, count: int, objects: int, bytes_held: int) -> Counts:
        """With further occurrences."""
        return Counts(self.count + count, self.objects + objects, self.bytes_held + bytes_held)


def with_counts(report: CycleReport, counts: Mapping[str, Counts]) -> CycleReport:
    """The report with other counts for the leaks that have some, by signature."""
    model = json.loads(report.to_json())
    for leak in model["leaks"]:
        counted = counts.get(leak["signature"])
        if counted is None:
            continue
        if counted.count != leak["count"]:
            # Measured and listed for the occurrences that were reported, not for all.
            leak["bytes_freed"] = None
        leak["count"] = counted.count
        leak["objects"] = counted.objects
        leak["bytes_held"] = counted.bytes_held
    model["leaks"].sort(key=lambda leak: (-leak["bytes_held"], leak["signature"]))
    return CycleReport.from_json(json.dumps(model))
