"""Runs one host program: bare, or with ``--watch`` under the always-on watch.

With ``--young`` each collection is one of the youngest generation first, after a few that found
nothing, so that the watch takes its looks before a collection rarely. A program prints what it can
see. Where the watch still has to be there at the end, it is asked for a last leak.
"""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy

from . import PROGRAMS
from .parts import EARLY, ENDINGS, UNWATCHED, WATCHES, Node


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
