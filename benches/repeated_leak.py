"""What a leak costs the program the first time, and what it costs when it is known.

A training step that leaks the way the step before did is the ordinary case. Here each step leaves
garbage of one kind, and the collection that frees it is timed: with nothing watching, with a watch
that meets the leak for the first time, and with one that has met it before.
"""

from __future__ import annotations

import gc
import statistics
import subprocess
import sys
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


LEAKS = (captured_owner, ring_of_100)


def collection_of(leak: Callable[[], None]) -> int:
    leak()
    start = time.perf_counter_ns()
    gc.collect(0)
    return time.perf_counter_ns() - start


def nothing(_: cyclescope.CycleReport) -> None:
    pass


def first_in_another_process(leak: Callable[[], None]) -> int:
    command = [sys.executable, __file__, "--first", leak.__name__]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def prepare() -> None:
    # Not part of any leak's price: what the first collection of all looks up.
    cyclescope.find_tensor_cycles(devices="any")
    gc.disable()
    gc.collect()
    gc.freeze()


def main() -> None:
    parser = measure.arguments(__doc__ or "")
    parser.add_argument("--first", help="only print what the first collection of this leak takes")
    args = parser.parse_args()
    prepare()
    if args.first:
        with cyclescope.Watch(["any"], nothing, once_per_leak=True):
            print(collection_of({leak.__name__: leak for leak in LEAKS}[args.first]))
        return

    rows = []
    for leak in LEAKS:
        bare = statistics.median(collection_of(leak) for _ in range(REPETITIONS))
        first = statistics.median(first_in_another_process(leak) for _ in range(FIRSTS))
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
