"""Does a watch do no harm? Random programs with and without it must log the same.

Each mode is compared with its control: a watch with nothing, a watch beside other callbacks with
those callbacks alone. Ends with 1, and the first difference, if there is one.

usage: python tests/harmless/compare.py [--seeds N] [--mode MODE ...] [--python PY ...] [--torch]
"""

from __future__ import annotations

import argparse
import difflib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).with_name("programs.py")
MODES = ["callback", "watch", "watch-cuda", "beside"]
BATCH = 2500
"""Programs that one process runs."""


def control(mode: str) -> str:
    return "beside-bare" if mode == "beside" else "bare"


@dataclass(frozen=True)
class Child:
    """How programs are run."""

    python: str
    torch: bool = False
    busy: bool = False
    timeout: float = 600

    def start(self, mode: str, first: int, count: int, *more: str) -> tuple[str, str]:
        """What it printed, and a sentence about how it ended if that was not well."""
        options = ["--mode", mode, "--start", str(first), "--seeds", str(count), *more]
        options += ["--torch"] * self.torch
        options += ["--busy"] * (self.busy and mode not in map(control, MODES))
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
            try:
                code = subprocess.run(
                    [self.python, str(PROGRAMS), *options],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=errors,
                    env=environment,
                    timeout=self.timeout,
                    check=False,
                ).returncode
                ended = ""
                if code < 0:
                    ended = f"died of {signal.Signals(-code).name}"
                elif code:
                    ended = f"ended with {code}"
            except subprocess.TimeoutExpired:
                ended = f"did not end in {self.timeout:g} s"
            for file in (out, errors):
                file.seek(0)
            if ended:
                ended += "\n" + errors.read()[-3000:]
            return out.read(), ended

    def digests(self, mode: str, first: int, count: int) -> dict[int, str]:
        """The digest of each program; of the one in which the process failed, how it did.

        Where it ended early, it goes on after the program at fault.
        """
        found: dict[int, str] = {}
        after = first
        failures = 0
        while True:
            text, ended = self.start(mode, after, first + count - after)
            *lines, last = text.splitlines() or [""]
            if not ended and last == "does nothing":
                ended = "the watch has seen nothing of a leak at the end"
            elif not ended and last != "works":
                ended = "ended early"
            for line in lines if last in ("works", "does nothing") else [*lines, last]:
                seed, _, digest = line.partition(" ")
                if len(digest) == 32:
                    found[int(seed)] = digest
            after = max(found, default=first - 1) + 1
            if not ended:
                return found
            found[min(after, first + count - 1)] = ended
            after += 1
            failures += 1
            if failures == 5 or after >= first + count:
                return found

    def log(self, mode: str, first: int, seed: int) -> list[str]:
        text, ended = self.start(mode, first, seed - first + 1, "--show", str(seed))
        return [*text.splitlines(), *ended.splitlines()]


def difference(child: Child, mode: str, first: int, seed: int) -> Iterator[str]:
    """What differs in the logs of a program: run alone if that will do, or after the others."""
    for begin in (seed, first):
        expected = child.log(control(mode), begin, seed)
        found = child.log(mode, begin, seed)
        if expected != found:
            yield f"programs.py --start {begin} --seeds {seed - begin + 1} --show {seed}"
            lines = difflib.unified_diff(expected, found, control(mode), mode, n=2, lineterm="")
            for number, line in enumerate(lines):
                if number > 25:
                    return
                yield line if len(line) < 1500 else line[:1500] + " …"
            return
    yield "the logs do not differ when the programs are run again"


def compare(child: Child, modes: Sequence[str], first: int, count: int, jobs: int) -> bool:
    """Whether all modes log the same as their controls; says what differs."""
    needed = dict.fromkeys([*map(control, modes), *modes])
    seconds = dict.fromkeys(needed, 0.0)
    results: dict[str, dict[int, str]] = {mode: {} for mode in needed}
    batches = [(at, min(BATCH, first + count - at)) for at in range(first, first + count, BATCH)]

    def run(mode: str, at: int, size: int) -> None:
        begun = time.monotonic()
        results[mode].update(child.digests(mode, at, size))
        seconds[mode] += time.monotonic() - begun

    with ThreadPoolExecutor(jobs) as pool:
        for future in [pool.submit(run, mode, *batch) for batch in batches for mode in needed]:
            future.result()
    harmless = True
    for mode in modes:
        mine, theirs = results[mode], results[control(mode)]
        wrong = [seed for seed in range(first, first + count) if mine.get(seed) != theirs.get(seed)]
        speed = f"{count / max(seconds[mode], 1e-9):,.0f} programs a second"
        print(f"{mode}: {len(wrong):,} of {count:,} differ from {control(mode)} ({speed})")
        failed = [seed for seed in mine if len(mine[seed]) != 32]
        for seed in failed[:3]:
            print(f"  program {seed} {mine[seed]}")
        if wrong:
            harmless = False
            seed = next((seed for seed in wrong if seed not in failed), wrong[0])
            print(f"  the first is {seed}:")
            at = first + (seed - first) // BATCH * BATCH
            for line in difference(child, mode, at, seed):
                print(f"    {line}")
        elif failed:
            harmless = False
        sys.stdout.flush()
    return harmless


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--mode", nargs="+", default=MODES, help=f"default: {' '.join(MODES)}")
    parser.add_argument("--python", nargs="+", default=[sys.executable])
    parser.add_argument("--torch", action="store_true", help="tensors too")
    parser.add_argument("--busy", action="store_true", help="other threads run at any time")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=600, help="seconds for a batch")
    args = parser.parse_args()
    harmless = True
    for python in args.python:
        if len(args.python) > 1:
            print(python)
        child = Child(python, args.torch, args.busy, args.timeout)
        harmless &= compare(child, args.mode, args.start, args.seeds, args.jobs)
    sys.exit(not harmless)


if __name__ == "__main__":
    main()
