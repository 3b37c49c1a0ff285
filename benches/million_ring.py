"""A ring of a million objects that holds one array: how soon it is reported, and how largely."""

from __future__ import annotations

import gc
import time

import numpy

import cyclescope
import measure

OBJECTS = 1_000_000


class Node:
    """An object that refers to the next."""

    __slots__ = ("array", "next")

    next: Node
    array: numpy.ndarray


def make_ring() -> None:
    first = last = Node()
    for _ in range(OBJECTS - 1):
        last.next = Node()
        last = last.next
    last.next = first
    first.array = numpy.zeros(2**18, dtype=numpy.float32)


def main() -> None:
    args = measure.arguments(__doc__ or "").parse_args()
    gc.disable()
    cyclescope.find_tensor_cycles(devices="any")
    gc.freeze()

    make_ring()
    start = time.perf_counter_ns()
    gc.collect()
    bare = time.perf_counter_ns() - start

    make_ring()
    start = time.perf_counter_ns()
    report = cyclescope.find_tensor_cycles(devices="any")
    found = time.perf_counter_ns() - start

    make_ring()
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
    measure.publish(title, measure.table(["what", "cost"], rows), record=args.record)


if __name__ == "__main__":
    main()
