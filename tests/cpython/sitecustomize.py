"""Start-up code of an interpreter that runs CPython's own tests; see ``run.py``.

Every collection leaves a little garbage for the next, with an array in it, so that a watch has
something to report each time and reads whatever else is garbage with it.
"""

import atexit
import gc
import os

import numpy

import cyclescope


def leave_garbage(phase: str, info: dict[str, int]) -> None:
    if phase == "stop":
        ring: list[object] = [numpy.zeros(8)]
        ring.append(ring)


reports: list[int] = []


def count(report: cyclescope.CycleReport) -> None:
    if not reports:
        reports.append(0)
    reports[0] += len(report.leaks)


def prove_that_it_watched() -> None:
    watch.flush()
    with open(os.environ["PROOF_OF_WATCH"], "a", encoding="ascii") as proof:
        proof.write(f"{sum(reports)}\n")


if not os.environ.get("PROOF_OF_WATCH_OFF"):
    gc.callbacks.append(leave_garbage)
if os.environ.get("PROOF_OF_WATCH"):
    watch = cyclescope.observe_tensor_cycles(count, devices="any")
    # Called before what cyclescope has registered.
    atexit.register(prove_that_it_watched)
