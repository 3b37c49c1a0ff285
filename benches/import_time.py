"""What ``import cyclescope`` costs a program that starts, beside an empty one.

Each program is run in turn in a process of its own, many times over, so that what else the machine
does falls on all alike. Modules that PyTorch and most programs import anyway (dataclasses, logging)
are charged to the first use here, as nothing has imported them before.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

import measure

RUNS = 30

PROGRAMS = {
    "an empty program": "pass",
    "`import cyclescope`": "import cyclescope",
    "the first use of it": "from cyclescope import warn_tensor_cycles",
    "`import numpy`": "import numpy",
}


def run_time(program: str) -> int:
    start = time.perf_counter_ns()
    subprocess.run([sys.executable, "-c", program], check=True)
    return time.perf_counter_ns() - start


def main() -> None:
    args = measure.arguments(__doc__ or "").parse_args()
    times: dict[str, list[int]] = {name: [] for name in PROGRAMS}
    for _ in range(RUNS + 1):
        for name, program in PROGRAMS.items():
            times[name].append(run_time(program))
    # The first of each writes and reads what the others find in memory.
    medians = {name: statistics.median(found[1:]) for name, found in times.items()}
    empty = medians["an empty program"]
    rows = [
        [
            name,
            measure.duration(median),
            f"{median / empty:.2f} ×",
            "" if median == empty else f"+{measure.duration(max(0, median - empty))}",
        ]
        for name, median in medians.items()
    ]
    measure.publish(
        f"What an import costs at the start, medians of {RUNS}",
        measure.table(["program", "run time", "to empty", "more"], rows),
        record=args.record,
    )


if __name__ == "__main__":
    main()
