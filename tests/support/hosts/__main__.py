"""Host programs that must not notice cyclescope: each is run bare and watched, and compared.

``python hosts.py NAME`` runs one bare, with ``--watch`` under the always-on watch. With ``--young``
each collection is one of the youngest generation first, after a few that found nothing, so that the
watch takes its looks before a collection rarely. A program prints what it can see. Where the watch
still has to be there at the end, it is asked for a last leak.
"""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy

import hosts_callbacks as hosts_callbacks
import hosts_ends as hosts_ends
import hosts_garbage as hosts_garbage
from hosts_parts import EARLY, ENDINGS, UNWATCHED, WATCHES, Node
from hosts_parts import PROGRAMS as PROGRAMS

ONCE = {
    "callbacks_cleared_at_stop_by_a_newcomer",
    "fork",
    "fork_in_thread",
    "fork_in_finalizer",
    "garbage_left_at_exit",
}
"""Programs that count the collections or reports, and so are not run with ``--young``."""


def main() -> None:
    name, watched = sys.argv[1], "--watch" in sys.argv
    gc.disable()
    if name in EARLY:
        PROGRAMS[name]()
    reports: list[Any] = []
    if watched:
        import cyclescope

        WATCHES.append(cyclescope.observe_tensor_cycles(reports.append, devices="any"))
    gc.collect()
    if "--young" in sys.argv:
        for _ in range(10):
            Node()
            gc.collect(0)
        collect = gc.collect
        gc.collect = lambda generation=2: collect(0) + collect(generation)
    if name not in EARLY:
        PROGRAMS[name]()
    if watched and name not in UNWATCHED | ENDINGS | EARLY:
        WATCHES[0].flush()
        reports.clear()
        node = Node()
        node.array = numpy.zeros(1234)
        del node
        gc.collect()
        WATCHES[0].flush()
        assert any(
            buffer.shape == (1234,)
            for report in reports
            for leak in report.leaks
            for buffer in leak.buffers
        ), "the watch did not see the last leak"


if __name__ == "__main__":
    main()
