"""At which step each leak is told, and that no look-alike is: with the default settings.

python tests/long/growth.py [STEPS ...] [NAME ...]

Writes a table of all programs of ``support.growing`` and ``support.growing_look_alikes``, and exits
with status 1 if one is wrong. Each runs in a process of its own.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

import cyclescope
from support.growing import LEAKS
from support.growing_look_alikes import LOOK_ALIKES

PROGRAMS = {program.__name__: program for program in (*LEAKS, *LOOK_ALIKES)}
STEPS = [200, 800, 6000]


Told = tuple[int, str, str]


def watch(name: str, steps: int) -> tuple[list[Told], list[Told], str]:
    """What was told of a program, what of it remains at the end, and the cost."""
    torch.set_num_threads(1)
    told: list[cyclescope.Growth] = []
    started = time.monotonic()
    with cyclescope.watch_growth(devices="any") as monitor:
        PROGRAMS[name](steps, lambda: told.extend(monitor.step()))
    took = time.monotonic() - started
    cost = monitor.cost
    spent = f"{cost.samples} samples, {cost.seconds:.2f} of {took:.2f} s"
    return shown(told), shown(monitor.found), spent


def shown(found: list[cyclescope.Growth]) -> list[Told]:
    """What can be sent to another process."""
    return [(each.step, each.pattern, each.owner) for each in found]


def judge(name: str, told: list[Told], left: list[Told]) -> str:
    """``right``, or what is wrong."""
    expected = LEAKS.get(PROGRAMS[name])
    if expected is None:
        if left:
            return "FALSE ALARM"
        return "right" if not told else "withdrawn"
    pattern, owner = expected
    if not told:
        return "SILENT"
    if (told[0][1], owner in told[0][2]) != (pattern, True):
        return "WRONG"
    # What was withdrawn may have been told again.
    last = [each for each in told if each[1:] == told[0][1:]][-1]
    return "right" if last in left else "WITHDRAWN"


def main() -> int:
    """Write the table."""
    wrong = 0
    context = multiprocessing.get_context("fork")
    given = sys.argv[1:]
    names = [each for each in given if not each.isdigit()]
    for steps in [int(each) for each in given if each.isdigit()] or STEPS:
        print(f"\n{steps} steps")
        for name in PROGRAMS:
            if names and name not in names:
                continue
            with context.Pool(1) as pool:
                told, left, cost = pool.apply(watch, (name, steps))
            verdict = judge(name, told, left)
            wrong += verdict.isupper()
            said = "; ".join(f"{step}: {pattern}: {owner}" for step, pattern, owner in told)
            print(f"{name:24} {verdict:12} {cost:34} {said[:200]}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
