"""The score: does cyclescope say of each fixture exactly what is true, and is the cut a cure?

``make score`` runs it; with ``tests`` and ``fixtures`` in ``PYTHONPATH``:

    python -m support.scoring [--device cpu|cuda:0] [FIXTURE ...]

For each leak: found, bytes exact, cycle and path named as they are, an acceptable reference to cut,
and the cut made for real: the fixture leaks again, the named references are found in the heap by
name alone and removed, and the tensors must go at once, with no collection. For each look-alike: no
report. What counts as true is first verified without cyclescope (see ``trial.py``). The exit status
is 0 if all of it holds.
"""

from __future__ import annotations

import argparse
import gc
import platform
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from unittest import SkipTest

import common
import cyclescope
from support import heap_by_name
from support.trial import Trial, allocated, small_heap, untruths

Steps = list[tuple[str, str]]

CHECKS = {
    "truth": "fixtures are what they say, by CPython's own word",
    "found": "leaks found",
    "silent": "look-alikes not reported",
    "bytes": "bytes exact",
    "cycle": "cycle and path named",
    "cut": "cut acceptable",
    "freed": "cut made and memory gone",
}


@dataclass
class Score:
    """What came out for one fixture."""

    name: str
    is_leak: bool = True
    checks: dict[str, list[str]] = field(default_factory=dict)
    """What is wrong, for each check that was reached; nothing where the check holds."""
    cut_proven: bool = True
    """False if the report says that its cut is not proven; then nobody made it."""
    skipped: str | None = None
    """Why there is no score."""

    def has(self, check: str) -> bool:
        """True if the check is about such a fixture."""
        return check == "truth" or (check != "silent") == self.is_leak

    def passed(self) -> set[str]:
        return {check for check, faults in self.checks.items() if not faults}

    def faults(self) -> list[tuple[str, str]]:
        """Check and sentence of each."""
        return [(check, fault) for check, faults in self.checks.items() for fault in faults]


def score(name: str, device: str) -> Score:
    """Put one fixture to all checks."""
    result = Score(name)
    try:
        trial = Trial(name, device)
    except SkipTest as reason:
        result.skipped = str(reason).removeprefix(f"{name} ")
        return result
    result.is_leak = trial.expected.leaks > 0
    try:
        with common.collector_paused():
            for check, faults in checks(trial, result):
                result.checks[check] = list(faults)
    except Exception as error:
        result.checks["raised"] = [f"{type(error).__name__}: {error}"]
    return result


def checks(trial: Trial, result: Score) -> Iterator[tuple[str, Iterator[str]]]:
    yield "truth", untruths(trial)

    trial.leak(2)
    before = allocated(trial.device)
    report = find(trial.device)
    freed = before - allocated(trial.device)
    yield "found" if result.is_leak else "silent", unlike_expected(trial, report)
    trial.let_go()

    if result.is_leak and len(report.leaks) == 1:
        leak = report.leaks[0]
        yield "bytes", wrong_bytes(leak, trial, freed)
        yield "cycle", wrong_names(leak, trial.expected)
        yield "cut", wrong_cut(leak, trial.expected)
        result.cut_proven = all(cut.proven for cut in leak.cuts)
        yield "freed", wrong_cure(leak, report, trial)


def find(device: str) -> cyclescope.CycleReport:
    """The tests freeze all but the leaks; `make score` freezes nothing."""
    return cyclescope.find_tensor_cycles(
        devices="any" if device == "cpu" else device, frozen=gc.get_freeze_count() == 0
    )


def unlike_expected(trial: Trial, report: cyclescope.CycleReport) -> Iterator[str]:
    if len(report.leaks) != trial.expected.leaks:
        reported = "; ".join(leak.summary for leak in report.leaks)
        yield f"{len(report.leaks)} leaks reported, not {trial.expected.leaks}: {reported}"
    if find(trial.device).leaks:
        yield "the garbage of the first look is still there"
    if trial.held and not trial.expected.stays_alive:
        yield f"{trial.held} bytes are still there"


def wrong_bytes(leak: cyclescope.Leak, trial: Trial, freed: int) -> Iterator[str]:
    nbytes = trial.expected.nbytes(2)
    for what, count in {
        "held": leak.bytes_held,
        "of all buffers": sum(buffer.bytes for buffer in leak.buffers),
    }.items():
        if count != nbytes:
            yield f"{count} bytes {what}, not {nbytes}"
    if leak.count != 1:
        yield f"{leak.count} occurrences, not 1"
    if sorted(b.pointer for b in leak.buffers) != sorted(one.address for one in trial.made):
        yield "the buffers are not those that the fixture made"
    if {buffer.device for buffer in leak.buffers} != {trial.device}:
        yield f"buffers on {', '.join(buffer.device for buffer in leak.buffers)}"
    if trial.device == "cpu":
        return
    if not all(buffer.confirmed for buffer in leak.buffers):
        yield "the driver did not confirm each buffer"
    if leak.bytes_freed != freed or freed < nbytes:
        yield f"{leak.bytes_freed} bytes freed; the allocator got {freed} back"


def wrong_names(leak: cyclescope.Leak, expected: common.Expected) -> Iterator[str]:
    steps = [(step.type_name, step.edge) for step in leak.cycle]
    if not any(alike(turn, expected.cycle) for turn in turns(steps)):
        yield f"the cycle is {steps}"
    for buffer in leak.buffers:
        if len(buffer.path) != len(expected.path) or not all(
            part in edge for part, edge in zip(expected.path, buffer.path, strict=True)
        ):
            yield f"the path to a buffer is {buffer.path}"


def turns(steps: Steps) -> Iterator[Steps]:
    """The cycle as it reads from each of its steps."""
    for start in range(len(steps)):
        yield steps[start:] + steps[:start]


def alike(steps: Steps, expected: tuple[tuple[str, str], ...]) -> bool:
    return len(steps) == len(expected) and all(
        name in type_name and part in edge
        for (type_name, edge), (name, part) in zip(steps, expected, strict=True)
    )


def wrong_cut(leak: cyclescope.Leak, expected: common.Expected) -> Iterator[str]:
    owner, edge = expected.cut or ("nobody", "nothing")
    if not any(owner in cut.owner and edge in cut.edge for cut in leak.cuts):
        yield f"{edge} of {owner} is not among {[(cut.owner, cut.edge) for cut in leak.cuts]}"
    if not leak.advice:
        yield "there is no advice"


def wrong_cure(
    leak: cyclescope.Leak, report: cyclescope.CycleReport, trial: Trial
) -> Iterator[str]:
    """Makes the cuts; where they are not proven, the report must say so, and nobody makes them."""
    if not all(cut.proven for cut in leak.cuts):
        if trial.expected.cut_proven:
            yield f"the cut is not proven: {[(cut.owner, cut.edge) for cut in leak.cuts]}"
        trace = " ".join(str(report).split())
        if "not proven" not in trace and "look here first" not in trace:
            yield "the trace does not say that its cut is not proven"
        return
    with small_heap():  # from now on gc.get_objects() has what is new
        trial.leak()
        nbytes = trial.expected.nbytes(1)
        before = allocated(trial.device)
        # References of one name are several cuts, and all found at once.
        for owner, edge in dict.fromkeys((cut.owner, cut.edge) for cut in leak.cuts):
            owners = [
                thing
                for thing in gc.get_objects()
                if heap_by_name.is_named(thing, owner) and heap_by_name.refers(thing, edge)
            ]
            if not owners:
                yield f"nothing in the heap is called {owner} and has {edge}"
            while owners:
                heap_by_name.sever(owners.pop(), edge)
        freed = before - allocated(trial.device)
        if trial.held or (trial.device != "cpu" and freed < nbytes):
            yield f"{trial.held} bytes stay when {[(c.owner, c.edge) for c in leak.cuts]} is cut"


def told(scores: list[Score]) -> Iterator[str]:
    """What is wrong, a line each; what was left out, and why; and how many pass each check."""
    for one in scores:
        for check, fault in one.faults():
            yield f"{one.name:40} {check:7} {fault}"
    for reason in sorted({one.skipped for one in scores if one.skipped}):
        left_out = ", ".join(one.name for one in scores if one.skipped == reason)
        yield textwrap.fill(f"skipped ({reason}): {left_out}", 100, subsequent_indent="    ")
    scored = [one for one in scores if not one.skipped]
    yield f"{len(scored)} fixtures scored, {len(scores) - len(scored)} skipped"
    for check, meaning in CHECKS.items():
        meant = [one for one in scored if one.has(check)]
        holds = [one for one in meant if check in one.passed()]
        unproven = [one.name for one in holds if check == "freed" and not one.cut_proven]
        line = f"{len(holds) - len(unproven):4} of {len(meant)} {meaning}"
        yield f"{line}; {len(unproven)} not proven: {', '.join(unproven)}" if unproven else line


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cpu", help="where the tensors live (default: cpu)")
    parser.add_argument("fixtures", nargs="*", help="names of fixtures (default: all)")
    args = parser.parse_args()
    try:
        common.tensor(args.device, 1)
    except (AssertionError, RuntimeError) as error:  # PyTorch's words for: there is no such device
        parser.error(f"no tensor can be made on --device {args.device}: {error}")
    print(f"Python {platform.python_version()}, {common.framework()}, {args.device}", flush=True)
    scores = [score(name, args.device) for name in args.fixtures or common.names()]
    print("\n".join(told(scores)))
    all_hold = any(one.passed() for one in scores) and not any(one.faults() for one in scores)
    return 0 if all_hold else 1


if __name__ == "__main__":
    sys.exit(main())
