"""Leaks of very many objects: how soon they are reported, and how largely.

100,000 objects that are one component, a ring and a web of random references, each with what the
watch took for the whole of it: graph, cycle, cut and model. Then a ring of a million.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable

import numpy

import cyclescope
import measure

MANY = 100_000
OBJECTS = 1_000_000
REPETITIONS = 9


class Node:
    """An object that refers to the next."""

    __slots__ = ("array", "next")

    next: Node
    array: numpy.ndarray


def make_ring(count: int) -> None:
    first = last = Node()
    for _ in range(count - 1):
        last.next = Node()
        last = last.next
    last.next = first
    first.array = numpy.zeros(2**18, dtype=numpy.float32)


def make_web(count: int) -> None:
    """Lists, each of which refers to the next and to any other."""
    chance = random.Random(0)
    lists: list[list[object]] = [[] for _ in range(count)]
    for place, one in enumerate(lists):
        one += [lists[(place + 1) % count], lists[chance.randrange(count)]]
    lists[0].append(numpy.zeros(2**18, dtype=numpy.float32))


def collection(make: Callable[[int], None]) -> int:
    make(MANY)
    start = time.perf_counter_ns()
    gc.collect()
    return time.perf_counter_ns() - start


def components(*, record: bool) -> None:
    rows = []
    for make in (make_ring, make_web):
        seen: list[cyclescope.CycleReport] = []
        bare = [collection(make) for _ in range(REPETITIONS)]
        with cyclescope.observe_tensor_cycles(seen.append, devices="any"):
            watched = [collection(make) for _ in range(REPETITIONS)]
        leaks = [leak.objects for report in seen for leak in report.leaks]
        assert leaks == [MANY] * REPETITIONS
        alone, together = statistics.median(bare), statistics.median(watched)
        costs = [measure.duration(each) for each in (alone, together, together - alone)]
        rows.append([make.__name__.removeprefix("make_"), *costs])
    head = ["shape", "bare `gc.collect()`", "under a watch", "graph, cycle, cut and model"]
    title = f"{MANY:,} objects of garbage in one component that hold an array"
    measure.publish(title, measure.table(head, rows), record=record)


def main() -> None:
    args = measure.arguments(__doc__ or "").parse_args()
    gc.disable()
    cyclescope.find_tensor_cycles(devices="any")
    gc.freeze()
    components(record=args.record)
    million(record=args.record)


def million(*, record: bool) -> None:
    make_ring(OBJECTS)
    start = time.perf_counter_ns()
    gc.collect()
    bare = time.perf_counter_ns() - start

    make_ring(OBJECTS)
    start = time.perf_counter_ns()
    report = cyclescope.find_tensor_cycles(devices="any")
    found = time.perf_counter_ns() - start

    make_ring(OBJECTS)
    seen: list[cyclescope.CycleReport] = []
    with cyclescope.observe_tensor_cycles(seen.append, devices="any"):
        start = time.perf_counter_ns()
        gc.collect()
        watched = time.perf_counter_ns() - start
    (leak,) = report.leaks
    assert leak.objects == OBJECTS
    assert [other.signature for report in seen for other in report.leaks] == [leak.signature]

    rows = [
        ["bare `gc.collect()`", measure.duration(bare)],
        ["`find_tensor_cycles()`: look, collect, report", measure.duration(found)],
        ["`gc.collect()` under a watch, reported", measure.duration(watched)],
    ]
    for name in ("to_html", "to_svg", "to_json", "to_dot", "__str__"):
        start = time.perf_counter_ns()
        text: str = getattr(report, name)()
        took = time.perf_counter_ns() - start
        rows.append(
            [f"`{name}()`", f"{measure.duration(took)}, {len(text.encode()):,} bytes"],
        )
    title = f"A ring of {OBJECTS:,} objects that holds one array"
    measure.publish(title, measure.table(["what", "cost"], rows), record=record)


if __name__ == "__main__":
    main()
