"""How many instructions a watch adds to a collection, whatever else the machine does.

Runs each scenario under valgrind's callgrind, twice with different numbers of collections; the
difference is what one collection takes, of CPython and ours together. Counts are all but the same
from run to run for one build of cyclescope, CPython and NumPy.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import hook_cost

FEW, MANY = 20, 84

SCENARIOS = {
    "empty young collection": hook_cost.no_garbage,
    "young collection, 200 objects of captured owners are garbage": hook_cost.owners_of_closures(
        200
    ),
    "young collection, 200 instances are garbage": hook_cost.pairs_of_instances(200),
    "young collection, 200 lists are garbage": hook_cost.pairs_of_lists(200),
}


def collect(name: str, watched: bool, times: int) -> None:
    """What runs under callgrind: so many young collections, counted from the first to the last."""
    import gc

    import numpy  # noqa: F401  (a framework, so that garbage is looked at)

    import cyclescope

    make = SCENARIOS[name]
    gc.collect()
    gc.freeze()
    gc.disable()
    if watched:
        cyclescope.observe_tensor_cycles(print, devices="any")
    # What is made once is made.
    for _ in range(4):
        make()
        gc.collect(0)
    count_instructions("on")
    for _ in range(times):
        make()
        gc.collect(0)
    count_instructions("off")
    # The end of the program is not what is measured.
    os._exit(0)


def count_instructions(state: str) -> None:
    subprocess.run(
        ["callgrind_control", "--instr=" + state, str(os.getpid())],
        stdout=subprocess.DEVNULL,
        check=True,
    )


def counted(name: str, watched: bool, times: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "callgrind.out")
        program = f"import instructions; instructions.collect({name!r}, {watched}, {times})"
        done = subprocess.run(
            [
                *("valgrind", "--tool=callgrind", "--instr-atstart=no"),
                *(f"--callgrind-out-file={out}", sys.executable, "-c", program),
            ],
            cwd=Path(__file__).parent,
            env=os.environ | {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        totals = re.search(r"^totals: (\d+)", out.read_text(), flags=re.MULTILINE)
        if done.returncode or totals is None:
            sys.exit(f"callgrind failed:\n{done.stderr}")
        return int(totals[1])


def main() -> None:
    missing = [tool for tool in ("valgrind", "callgrind_control") if shutil.which(tool) is None]
    if missing:
        sys.exit(f"instructions.py needs {missing[0]} (Debian: apt-get install valgrind)")
    print("instructions for one collection, with what makes the garbage\n")
    print("| collection | bare | with the watch | more |")
    print("|---|---:|---:|---:|")
    for name in sys.argv[1:] or SCENARIOS:
        each = {
            watched: (counted(name, watched, MANY) - counted(name, watched, FEW)) // (MANY - FEW)
            for watched in (False, True)
        }
        more = each[True] - each[False]
        print(f"| {name} | {each[False]:,} | {each[True]:,} | {more:,} |", flush=True)


if __name__ == "__main__":
    main()
