"""A program that leaks in every step, for as long as asked: does the watch's own memory stay flat?

Each step leaks in one of several ways, some new each time; a collection frees it. What the process
needs is sampled; after a warm-up, in which caches fill, it may not grow by more than ``--allowed``.

usage: python tests/long/soak.py [--minutes 60] [--share 0.33] [--device cuda:0]
"""

from __future__ import annotations

import argparse
import gc
import itertools
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy

import cyclescope


def on_host() -> Any:
    """32 KiB."""
    return numpy.zeros(2**12)


make_batch: Callable[[], Any] = on_host


def on_device(device: str) -> Callable[[], Any]:
    """As much on a device, by PyTorch."""
    import torch

    return lambda: torch.zeros(2**13, device=device)


class Step:
    """A training step's state, kept by a cycle."""

    def __init__(self) -> None:
        self.batch: Any = make_batch()
        self.me: Any = self


def attribute() -> None:
    Step()


def closure() -> None:
    step = Step()
    step.me = lambda: step


def exception() -> None:
    try:
        raise ValueError("no")
    except ValueError as error:
        kept = error
        batch = make_batch()
        del batch
    assert kept


def generator() -> None:
    def generate() -> Any:
        batch = make_batch()
        yield held
        del batch

    held: list[Any] = []
    held.append(generate())
    next(held[0])


def new_class() -> None:
    """A class made anew each time: its address, and so all that is cached by it, comes again."""
    type("Step", (Step,), {})()


def new_name() -> None:
    """Ever new leaks, as a signature sees them."""
    letters = "".join(chr(ord("a") + int(digit)) for digit in str(next(_numbers)))
    type(f"Step{letters}", (Step,), {})()


_numbers = itertools.count()
WAYS: list[Callable[[], None]] = [attribute, closure, exception, generator, new_class, new_name]


def resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument(
        "--share", type=float, default=1, metavar="PART", help="of one core, at most (default: all)"
    )
    parser.add_argument("--allowed", type=float, default=8, metavar="MIB", help="growth allowed")
    parser.add_argument("--device", help="where PyTorch's tensors live (default: NumPy's arrays)")
    args = parser.parse_args()
    global make_batch
    if args.device:
        make_batch = on_device(args.device)
        make_batch()
    devices = args.device or "any"
    if not os.path.exists("/proc/self/statm"):
        sys.exit("soak.py reads /proc, which this system has not: run it on Linux")

    logging.getLogger("cyclescope").addHandler(logging.NullHandler())
    logging.getLogger("cyclescope").propagate = False
    gc.disable()
    begun, used = time.monotonic(), time.process_time()
    end = begun + 60 * args.minutes
    samples: list[int] = []
    steps = 0
    at_start = resident()
    with (
        tempfile.TemporaryDirectory() as folder,
        cyclescope.warn_tensor_cycles(devices=devices, report_dir=folder) as watch,
        cyclescope.observe_tensor_cycles(lambda report: None, devices=devices),
    ):
        while time.monotonic() < end:
            for way in WAYS:
                way()
            gc.collect(steps % 3)
            steps += 1
            if steps % 500 == 0:
                cyclescope.find_tensor_cycles(devices=devices)
            # Sixty samples in all.
            if time.monotonic() - begun > len(samples) * args.minutes:
                samples.append(resident())
                minutes, used_now = (time.monotonic() - begun) / 60, samples[-1] / 2**20
                print(f"{minutes:5.1f} min {steps:7,} steps {used_now:.1f} MiB", flush=True)
            over = time.process_time() - used - args.share * (time.monotonic() - begun)
            if over > 0:
                time.sleep(over / args.share)
        leaks = len(watch.leaks)
    # The first quarter is for what is made once: pages, tallies up to their limit, caches.
    warm = samples[len(samples) // 4 :]
    growth = (max(warm[-3:]) - min(warm[:3])) / 2**20
    print(f"{steps:,} steps in {args.minutes:g} minutes, {leaks:,} distinct leaks")
    print(
        f"resident: {at_start / 2**20:.1f} MiB before the watch, {warm[0] / 2**20:.1f} MiB after a "
        f"quarter of the time, {warm[-1] / 2**20:.1f} MiB at the end ({growth:+.1f} MiB)"
    )
    if growth > args.allowed:
        sys.exit(f"it grew by more than {args.allowed:g} MiB")


if __name__ == "__main__":
    main()
