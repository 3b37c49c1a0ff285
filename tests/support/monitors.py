"""The monitor of growth that most tests need."""

from __future__ import annotations

import cyclescope


def monitor_of_all(every: int = 1, min_bytes: int = 0) -> cyclescope.LeakMonitor:
    """It tells of the tensors of any device, however small, and whatever the samples take."""
    return cyclescope.LeakMonitor(
        every=every, devices="any", min_bytes=min_bytes, max_share=float("inf")
    )
