"""Start-up code of an interpreter that runs CPython's own tests; see ``run.py``.

Every collection leaves a little garbage for the next, with an array in it, so that a watch has
something to report each time and reads whatever else is garbage with it. It is left by a callback;
or, so that the watch is alone in ``gc.callbacks``, by a finalizer, and with an array every other
time.
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


class Phoenix:
    """Garbage that leaves the next one."""

    __slots__ = ("array", "itself")

    def __init__(self, array: numpy.ndarray | None) -> None:
        self.array, self.itself = array, self

    def __del__(self) -> None:
        Phoenix(numpy.zeros(8) if self.array is None else None)


reports: list[int] = []


def count(report: cyclescope.CycleReport) -> None:
    if not reports:
        reports.append(0)
    reports[0] += len(report.leaks)


def prove_that_it_watched() -> None:
    watch.flush()
    with open(os.environ["PROOF_OF_WATCH"], "a", encoding="ascii") as proof:
        proof.write(f"{sum(reports)}\n")


match os.environ["GARBAGE_FROM"]:
    case "callback":
        gc.callbacks.append(leave_garbage)
    case "finalizer":
        Phoenix(None)
if os.environ.get("PROOF_OF_WATCH"):
    watch = cyclescope.observe_tensor_cycles(count, devices="any")
    # Called before what cyclescope has registered.
    atexit.register(prove_that_it_watched)
