"""What a look at the live heap costs, beside ``gc.collect()`` on the same heap and other tools.

Each figure is a ratio of processor time to that of the ``gc.collect()`` before it, and the median
of a few, so that other work on the machine touches both alike. The last two columns are the time of
a whole look for each object: its own, and the system's, which is that of handing out memory and
taking it back. The latter depends on the machine: a virtual one may have to ask its host for each
page, and wait twenty times as long for it as for one that it has.
"""

from __future__ import annotations

import gc
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import cyclescope
import measure

SIZES = (100_000, 1_000_000, 2_000_000, 5_000_000)
ROUNDS = 9
PEERS = ("refcycle", "objgraph", "guppy3", "pympler")
PEER_SIZES = (100_000, 1_000_000)
PATIENCE = 300
"""Seconds after which another tool is given up on."""

kept: list[Any] = []


class Node:
    """An object with two references and a list."""

    __slots__ = ("items", "left", "right")

    def __init__(self, left: Any, right: Any) -> None:
        self.left = left
        self.right = right
        self.items = [left]


def make_heap(objects: int) -> None:
    """Objects that refer to earlier ones, two tracked objects in each round."""
    nodes: list[Any] = [Node(None, None)]
    seed = 1
    for _ in range(objects // 2 - 1):
        seed = seed * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        nodes.append(Node(nodes[-1], nodes[(seed >> 33) % len(nodes)]))
    kept.append(nodes)


def timed(work: Callable[[], object]) -> float:
    """Seconds of processor time."""
    start = time.process_time()
    work()
    return time.process_time() - start


def own_row(objects: int) -> list[str]:
    """Our ratios, in a process of their own: the heap of one size must not weigh on the next."""
    make_heap(objects)
    tracked = len(gc.get_objects())
    gc.disable()
    target = kept[0][tracked // 4]
    ratios: dict[str, list[float]] = {"graph": [], "dominators": [], "path": []}
    own, systems = [], []
    heap = cyclescope.heap()
    for _ in range(ROUNDS):
        bare = timed(gc.collect)
        before = resource.getrusage(resource.RUSAGE_SELF)
        heap = cyclescope.heap()
        after = resource.getrusage(resource.RUSAGE_SELF)
        own.append(after.ru_utime - before.ru_utime)
        systems.append(after.ru_stime - before.ru_stime)
        took = own[-1] + systems[-1]
        share = {name: part / heap.pause_ms for name, part in heap.phases.items()}
        ratios["graph"].append(took * share["graph"] / bare)
        ratios["dominators"].append(took * (share["graph"] + share["dominators"]) / bare)
        bare = timed(gc.collect)
        ratios["path"].append(timed(lambda: cyclescope.why_alive(target)) / bare)
    numbers = [f"{statistics.median(ratio):.2f}" for ratio in ratios.values()]
    each = [statistics.median(times) / tracked * 1e9 for times in (own, systems)]
    bytes_each = heap.working_bytes / tracked
    return [
        f"{tracked:,}",
        measure.duration(bare * 1e9),
        *numbers,
        f"{bytes_each:.0f}",
        *(f"{time:.0f} ns" for time in each),
    ]


def refcycle() -> None:
    import refcycle

    refcycle.snapshot()


def objgraph() -> None:
    import objgraph

    objgraph.find_backref_chain(kept[0][1], objgraph.is_proper_module, max_depth=20)


def guppy3() -> None:
    from guppy import hpy

    view = hpy().heap()
    view.byrcs  # noqa: B018


def pympler() -> None:
    from pympler import muppy, summary

    summary.summarize(muppy.get_objects())


def peer_row(name: str, objects: int) -> list[str]:
    """Another tool's ratio: its nearest to a look at the whole heap."""
    work: Callable[[], None] = globals()[name]
    make_heap(objects)
    gc.disable()
    bare = timed(gc.collect)
    return [name, f"{timed(work) / bare:.1f}"]


def in_process(patience: float | None, *arguments: str) -> list[str] | None:
    """What this file prints when run with other arguments; None if it takes too long.

    Raises ``CalledProcessError`` if it fails.
    """
    command = [sys.executable, __file__, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience, check=True)
    except subprocess.TimeoutExpired:
        return None
    return done.stdout.strip().split("|")


def peer(name: str, size: int, patience: float) -> str:
    """A cell of the table of other tools."""
    try:
        row = in_process(patience, "--one", name, str(size))
    except subprocess.CalledProcessError as error:
        print(error.stderr.strip().splitlines()[-1], file=sys.stderr)
        return "failed"
    return row[1] if row is not None else f"beyond {patience:g} s"


def main() -> None:
    parser = measure.arguments(__doc__ or "")
    parser.add_argument("--one", nargs=2, help="(for internal use) measure one row")
    parser.add_argument("--objects", type=int, nargs="*", default=SIZES)
    parser.add_argument("--peer-objects", type=int, nargs="*", default=PEER_SIZES)
    parser.add_argument("--patience", type=float, default=PATIENCE, metavar="SECONDS")
    args = parser.parse_args()
    if args.one:
        what, size = args.one
        row = own_row(int(size)) if what == "own" else peer_row(what, int(size))
        print("|".join(row))
        return
    load = os.getloadavg()[0]
    rows = [in_process(None, "--one", "own", str(size)) for size in args.objects]
    head = [
        "tracked objects",
        "`gc.collect()`",
        "graph",
        "dominators, retained sizes",
        "one named path",
        "bytes an object",
        "own time an object",
        "the system's",
    ]
    lines = measure.table(head, [row for row in rows if row is not None])
    sizes = args.peer_objects
    if sizes:
        peers = [[name, *(peer(name, size, args.patience) for size in sizes)] for name in PEERS]
        lines += [
            "",
            f"Other tools, times `gc.collect()`, given up on after {args.patience:g} s:",
            "",
        ]
        lines += measure.table(["tool", *(f"{size:,} objects" for size in sizes)], peers)
    lines += ["", f"Load of the machine when it began: {load:.1f}."]
    measure.publish("A look at the live heap", lines, record=args.record)


if __name__ == "__main__":
    main()
