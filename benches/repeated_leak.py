"""What a leak costs the program the first time, and what it costs when it is known.

A training step that leaks the way the step before did is the ordinary case. Here each step leaves
garbage of one kind, and the collection that frees it is timed: with nothing watching, with a watch
that meets the leak for the first time, and with one that has met it before.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable

import numpy

import cyclescope
import measure

REPETITIONS = 10_000
FIRSTS = 20


class Owner:
    """An object with a callback that captures it, and an array."""

    def __init__(self) -> None:
        self.array = numpy.zeros(1024, dtype=numpy.float32)
        self.callback = lambda: self


class Node:
    """An object that knows its neighbour."""

    def __init__(self) -> None:
        self.neighbour: Node | None = None
        self.array: numpy.ndarray | None = None


def captured_owner() -> None:
    Owner()


def ring_of_100() -> None:
    nodes = [Node() for _ in range(100)]
    for node, neighbour in zip(nodes, nodes[1:] + nodes[:1], strict=True):
        node.neighbour = neighbour
    nodes[0].array = numpy.zeros(1024, dtype=numpy.float32)


def collection_of(leak: Callable[[], None]) -> int:
    leak()
    start = time.perf_counter_ns()
    gc.collect(0)
    return time.perf_counter_ns() - start


def nothing(_: cyclescope.CycleReport) -> None:
    pass


def main() -> None:
    args = measure.arguments(__doc__ or "").parse_args()
    # Not part of any leak's price: what the first collection of all looks up.
    cyclescope.find_tensor_cycles(devices="any")
    gc.disable()
    gc.collect()
    gc.freeze()

    rows = []
    for leak in (captured_owner, ring_of_100):
        bare = statistics.median(collection_of(leak) for _ in range(REPETITIONS))
        firsts = []
        for _ in range(FIRSTS):
            with cyclescope.Watch(["any"], nothing, once_per_leak=True):
                firsts.append(collection_of(leak))
        first = statistics.median(firsts)
        with cyclescope.Watch(["any"], nothing, once_per_leak=True) as watch:
            collection_of(leak)
            known = statistics.median(collection_of(leak) for _ in range(REPETITIONS))
            (tally,) = watch.leaks
        assert tally.count == REPETITIONS + 1
        rows.append(
            [
                leak.__name__.replace("_", " "),
                measure.duration(bare),
                f"{measure.duration(first)} ({first / bare:.1f} ×)",
                f"{measure.duration(known)} ({known / bare:.1f} ×)",
                f"{known / first:.2f} ×",
            ]
        )
    head = [
        "leak of each step",
        "bare collection",
        "first occurrence",
        "known leak",
        "known : first",
    ]
    measure.publish(
        f"What the same leak costs {REPETITIONS:,} times",
        measure.table(head, rows),
        record=args.record,
    )


if __name__ == "__main__":
    main()
