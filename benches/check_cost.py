"""What the checks of the pytest plugin cost: a single one on large heaps, and real suites.

The suites are those that come with networkx, sympy and NumPy, which PyTorch brings along. They run
with PyTorch imported, unchecked and checked in turns, each in a process of its own. The time is
that of the processor, from the start of the process to its end. The ratio is that of the shortest
times: what else runs on the machine makes each longer, by up to a quarter. The first suite also
runs once with checks of the whole heap; for 1,000 short tests these take a quarter of an hour.
"""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import measure

SUITES = {
    "networkx, generators: 30 short modules": ("--pyargs", "networkx.generators"),
    "networkx, classes: 1,000 tests of a millisecond": ("--pyargs", "networkx.classes"),
    "networkx, algorithms on trees, flow and colors": (
        "--pyargs",
        "networkx.algorithms.tree",
        "networkx.algorithms.flow",
        "networkx.algorithms.coloring",
    ),
    "sympy, sets and geometry": (
        *("-o", "markers=slow", "-o", "addopts="),
        *("--pyargs", "sympy.sets", "sympy.geometry"),
    ),
    "NumPy, masked arrays and core": ("--pyargs", "numpy.ma", "numpy._core.tests.test_multiarray"),
}
FIRST = next(iter(SUITES))
WAYS = {
    "unchecked": ("--tensor-cycles=off",),
    "checked": ("--tensor-cycles=error",),
    "whole heap": ("--tensor-cycles=error", "--tensor-cycles-scope=whole"),
}
PYTEST = ("-q", "-p", "no:cacheprovider", "-p", "no:cyclescope", "-p", "cyclescope.pytest_plugin")
AIM = 1.10
LIMIT = 1200
"""Seconds for one run."""


def median_of(check: Callable[[], object], rounds: int) -> float:
    durations = []
    for _ in range(rounds):
        begin = time.perf_counter_ns()
        check()
        durations.append(time.perf_counter_ns() - begin)
    return statistics.median(durations)


def single_checks() -> list[list[str]]:
    """One test that makes little: its beginning and two checks."""
    from cyclescope._forbid import Recorder
    from cyclescope._pytest.series import Alike, Series

    rows = []
    heap: list[list[int]] = []
    for size in (0, 300_000, 1_000_000):
        heap += ([i] for i in range(size - len(heap)))
        gc.collect()
        series = Series(Alike(("any",), (), fails=True, whole=False))

        def in_series(series: Series = series) -> None:
            series.begin("test")
            series.take()
            series.take()

        def whole() -> None:
            recorder = Recorder(["any"], [])
            recorder.take()
            recorder.take()
            recorder.stop()

        new = median_of(in_series, 200)
        series.stop()
        objects = f"{len(gc.get_objects()):,}"
        rows.append([objects, measure.duration(new), measure.duration(median_of(whole, 5))])
    return rows


def run(suite: str, way: str) -> float:
    """Processor time of a run, in seconds."""
    before = os.times()
    command = [sys.executable, "-m", "pytest", *PYTEST, "-p", "torch", *WAYS[way], *SUITES[suite]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    after = os.times()
    if done.returncode not in (0, 1) or " passed" not in done.stdout:
        sys.exit(f"{suite} did not run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return (after.children_user - before.children_user) + (
        after.children_system - before.children_system
    )


def suites(rounds: int, words: str) -> tuple[list[list[str]], bool]:
    rows, meets = [], True
    for suite in (name for name in SUITES if words in name):
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        for number in range(rounds):
            for way in WAYS:
                if way != "whole heap" or (number == 0 and suite == FIRST):
                    times[way].append(run(suite, way))
        bare = times["unchecked"]
        row = [suite, measure.duration(min(bare) * 1e9)]
        for way in ("checked", "whole heap"):
            ratio = min(times[way]) / min(bare) if times[way] else None
            row.append("" if ratio is None else f"{ratio:.2f} ×")
            # The first suite is too short for the aim: its time is that of the modules' ends.
            if way == "checked" and suite != FIRST and ratio is not None:
                meets &= ratio <= AIM
        rows.append(row)
        print(*row, sep="; ", file=sys.stderr, flush=True)
    return rows, meets


def main() -> None:
    parser = measure.arguments(__doc__ or "")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each suite, each way")
    parser.add_argument("--suite", default="", help="only suites whose name has these letters")
    arguments = parser.parse_args()
    import torch  # noqa: F401

    head = ["objects in the heap", "checked", "whole heap"]
    lines = ["A test, its beginning and two checks:", "", *measure.table(head, single_checks())]
    rows, meets = suites(arguments.rounds, arguments.suite)
    head = ["suite", "unchecked", "checked", "whole heap"]
    lines += ["", "Real suites:", "", *measure.table(head, rows), ""]
    met = "met" if meets else "NOT MET"
    lines.append(f"Aim for all suites but the first, checked: at most {AIM:.2f} ×: {met}")
    measure.publish("Checks of tests", lines, record=arguments.record)


if __name__ == "__main__":
    main()
