"""What the renderings of a report cost, for leaks of 10, 200 and 2,000 objects.

Each leak is a tree whose nodes know their parents, so that all of it is one knot of cycles, with an
array at a leaf.
"""

from __future__ import annotations

import gc
import statistics
import time

import numpy

import cyclescope
import measure

SIZES = (10, 200, 2000)
REPETITIONS = 7
CHILDREN = 3


class Node:
    """A node of a tree that knows its parent."""

    def __init__(self, parent: Node | None) -> None:
        self.parent = parent
        self.children: list[Node] = []
        self.array: numpy.ndarray | None = None


def make_tree(size: int) -> None:
    nodes = [Node(None)]
    while len(nodes) < size:
        parent = nodes[(len(nodes) - 1) // CHILDREN]
        nodes.append(Node(parent))
        parent.children.append(nodes[-1])
    nodes[-1].array = numpy.zeros(2**18, dtype=numpy.float32)


def main() -> None:
    args = measure.arguments(__doc__ or "").parse_args()
    gc.disable()
    cyclescope.find_tensor_cycles(devices="any")
    gc.freeze()

    rows = []
    for size in SIZES:
        pauses = []
        for _ in range(REPETITIONS):
            make_tree(size)
            report = cyclescope.find_tensor_cycles(devices="any")
            pauses.append(report.pause_us * 1000)
        assert len(report.leaks) == 1
        row = [f"{size:,} nodes", measure.duration(statistics.median(pauses))]
        for name in ("to_html", "to_svg", "to_json", "to_dot", "__str__"):
            render = getattr(report, name)
            durations = []
            for _ in range(REPETITIONS):
                start = time.perf_counter_ns()
                text: str = render()
                durations.append(time.perf_counter_ns() - start)
            took = measure.duration(statistics.median(durations))
            row.append(f"{took}, {len(text.encode()) / 1024:,.0f} KiB")
        rows.append(row)
    head = ["leak", "pause of the program", "page", "SVG", "JSON", "DOT", "text"]
    measure.publish("What the renderings cost", measure.table(head, rows), record=args.record)


if __name__ == "__main__":
    main()
