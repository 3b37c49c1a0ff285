"""Random programs, each of which logs all that it can see of its collections.

Run under a watch and without, the logs must be the same. ``compare.py`` does that; this runs the
programs of a range of seeds in one mode and prints a digest of each log.

usage: python tests/harmless/programs.py [--seeds N] [--start K] [--mode MODE] [--show SEED]
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import hashlib
import io
import logging
import os
import re
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy

import actions
import calm
import objects
from actions import actor, collect, state
from objects import label, mixture, own, world

PATIENCE = 1000.0
"""Seconds for which no other thread interrupts, so that it is the program that says when."""


class Mode:
    """What there is beside the programs, and whether it can be started and stopped."""

    def __init__(self) -> None:
        self.told = 0

    def toggle(self) -> None:
        """Start or stop a watch, in the midst of a program."""

    def settle(self) -> None:
        """Between two programs: everything is as it was before the first."""

    def works(self) -> bool:
        """Whether that which is said to do no harm does anything at all."""
        return True

    def finish(self) -> None: ...


class Watch(Mode):
    """Under a watch of `warn_tensor_cycles`; if a program stops it, the next has another."""

    def __init__(self, devices: str) -> None:
        super().__init__()
        import cyclescope

        mode = self

        class Count(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                mode.told += 1

        logger = logging.getLogger("cyclescope")
        logger.addHandler(Count())
        logger.propagate = False
        self.devices = devices
        self.observe = cyclescope.observe_tensor_cycles
        self.folder = tempfile.TemporaryDirectory()
        # What is imported with the first use is there then.
        for _ in range(2):
            with cyclescope.warn_tensor_cycles(devices=devices, report_dir=self.folder.name):
                self.leak()
            with self.observe(self.tell, devices=devices):
                self.leak()
        self.told = 0
        self.watch = cyclescope.warn_tensor_cycles(devices=devices, report_dir=self.folder.name)
        self.more: list[Any] = []
        self.turn = 0
        self.lock = threading.Lock()

    def tell(self, report: Any) -> None:
        self.told += 1

    def leak(self) -> None:
        ring: list[Any] = [numpy.zeros(8)]
        ring.append(ring)
        del ring
        gc.collect()

    def toggle(self) -> None:
        self.turn += 1
        if self.turn % 5 == 0:
            self.watch.stop()
        elif self.more and self.turn % 2:
            self.more.pop().stop()
        else:
            self.more.append(self.observe(self.tell, devices=self.devices))

    def settle(self) -> None:
        while self.more:
            self.more.pop().stop()
        if not self.watch.is_running:
            self.watch = self.observe(self.tell, devices=self.devices)
        self.watch.flush(60)
        self.turn = 0

    def works(self) -> bool:
        if self.devices != "any":
            return True
        self.watch.stop()
        self.told = 0
        with self.observe(self.tell, devices=self.devices) as watch:
            self.leak()
            watch.flush(60)
        return self.told > 0

    def finish(self) -> None:
        self.settle()
        self.watch.stop()
        self.folder.cleanup()


class Noise:
    """A callback that makes objects, some of them garbage at once."""

    def __init__(self) -> None:
        self.made: list[Any] = []

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        self.made.append([[], {"phase": phase}, lambda: phase])
        ring: list[Any] = []
        ring.append(ring)
        del self.made[:-20]


def do_nothing(phase: str, info: dict[str, Any]) -> None: ...


# Mutants, all of which do harm.


def save_all(phase: str, info: dict[str, Any]) -> None:
    """Takes the garbage away from the collector, and destroys it itself."""
    if phase == "start":
        gc.set_debug(gc.get_debug() | gc.DEBUG_SAVEALL)
    else:
        gc.set_debug(gc.get_debug() & ~gc.DEBUG_SAVEALL)
        gc.garbage.clear()


def reset_flags(phase: str, info: dict[str, Any]) -> None:
    """Leaves the flags as it found them."""
    if phase == "start":
        FOUND.append(gc.get_debug())
    elif FOUND:
        gc.set_debug(FOUND.pop())


FOUND: list[int] = []


def hold(phase: str, info: dict[str, Any]) -> None:
    """Refers to all the objects that there are, until the collection is over."""
    HELD[:] = gc.get_objects() if phase == "start" else []


HELD: list[Any] = []


def collect_once_more(phase: str, info: dict[str, Any]) -> None:
    if phase == "stop" and info["collected"] > 30:
        gc.set_threshold(*gc.get_threshold()[:2], 11)


def prepare(name: str) -> Mode:
    if name in CALLBACKS:
        gc.callbacks.append(CALLBACKS[name])
    mode: Mode
    if name.startswith("beside"):
        gc.callbacks.append(Noise())
    if name in ("watch", "beside"):
        mode = Watch("any")
    elif name == "watch-cuda":
        mode = Watch("cuda")
    else:
        mode = Mode()
    if name.startswith("beside"):
        gc.callbacks.append(Noise())
    return mode


CALLBACKS: dict[str, Callable[[str, dict[str, Any]], None]] = {
    "callback": do_nothing,
    "mutant-saves": save_all,
    "mutant-flags": reset_flags,
    "mutant-holds": hold,
    "mutant-threshold": collect_once_more,
}
MODES = ["bare", "bare-again", "watch", "watch-cuda", "beside-bare", "beside", *CALLBACKS]


def program() -> None:
    """Objects of all ages that refer to each other, let go and collected at random."""
    dice = world.random
    roots: list[Any] = []
    for _ in range(dice.randint(1, 4)):
        roots.append(mixture(dice.randint(1, 14)))
        if dice.random() < 0.6:
            young = dice.randrange(2)
            world.event("collect", young, gc.collect(young))
        if dice.random() < 0.3:
            del roots[dice.randrange(len(roots))]
        elif dice.random() < 0.1:
            world.act(None)
    del roots[dice.randint(0, len(roots)) :]
    collect(None)
    state()
    world.event("alive", own(gc.get_objects()))
    roots.clear()
    world.event("collect", 2, gc.collect())
    state()
    world.event("again", gc.collect())


def survivors() -> None:
    """What is alive at the end, in the collector's order, and how often it is referred to."""
    for generation in range(3):
        world.event("alive", generation, own(gc.get_objects(generation=generation)))
    for each in (world.kept, gc.garbage, actor.live):
        world.event("kept", [(label(it), sys.getrefcount(it)) for it in each])
    world.event("dead", [ref() is None for ref in world.held if type(ref) is not int])
    state()


class Runner:
    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self.real = sys.stderr
        gc.disable()
        self.callbacks = gc.callbacks[:]
        world.act = actor.act
        actor.watch = mode.toggle
        sys.unraisablehook = lambda it: world.event("unraisable", type(it.exc_value).__name__)
        self.reset()

    def run(self, seed: int) -> list[Any]:
        """The log of a program."""
        world.random.seed(seed)
        world.serial = 0
        world.log.clear()
        sys.stderr = printed = io.StringIO()
        actor.begin()
        actions.base[:] = gc.get_stats()
        gc.set_threshold(100_000, 10, 10)
        world.quiet = False
        try:
            if seed % 400 == 399:
                calm.threads(self.mode.toggle)
            elif seed % 20 == 19:
                calm.automatic()
            else:
                program()
                survivors()
        except BaseException as error:
            # Of an action of the program itself; or a list that it goes through has been emptied.
            world.event("failed", type(error).__name__)
        world.quiet = True
        sys.stderr = self.real
        # Only the lines about objects: the watch has some of its own, in the statistics.
        lines = [it for it in printed.getvalue().splitlines() if "collectable <" in it]
        log = [*world.log, *[re.sub("0x[0-9a-f]+", "", line) for line in lines]]
        self.reset()
        return log

    def reset(self) -> None:
        gc.disable()
        gc.set_debug(0)
        gc.set_threshold(700, 10, 10)
        gc.callbacks[:] = self.callbacks
        self.mode.settle()
        # There may be another watch, and so another callback.
        self.callbacks[:] = gc.callbacks
        for each in (world.log, world.kept, world.held, actor.callbacks, actor.live, gc.garbage):
            each.clear()
        for ref in world.arrays:
            array = ref()
            if array is not None:
                array.fill(None)
                del array
        world.arrays.clear()
        if actor.froze:
            actor.froze = False
            gc.unfreeze()
        for _ in range(6):
            gc.collect()
            if not own(gc.get_objects()):
                break
        gc.freeze()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--mode", choices=MODES, default="bare")
    parser.add_argument("--torch", action="store_true", help="tensors too")
    parser.add_argument("--show", type=int, metavar="SEED", help="print the log of this one")
    parser.add_argument(
        "--busy", action="store_true", help="let the watch's own thread come between at any time"
    )
    args = parser.parse_args()
    faulthandler.enable()
    warnings.simplefilter("ignore")
    if not args.busy:
        sys.setswitchinterval(PATIENCE)
    import cyclescope

    # In every mode: what has been imported shows, in CPython 3.13 in the order of some objects.
    logging.getLogger("cyclescope").addHandler(logging.NullHandler())
    cyclescope.warn_tensor_cycles(devices="any").stop()

    if args.torch:
        objects.add_torch()
    mode = prepare(args.mode)
    runner = Runner(mode)
    for seed in range(args.start, args.start + args.seeds):
        log = runner.run(seed)
        if args.show == seed:
            print(*log, sep="\n", flush=True)
        elif args.show is None:
            # At once, so that what comes after the last line is what crashed.
            line = f"{seed} {hashlib.md5(repr(log).encode()).hexdigest()}\n"
            os.write(1, line.encode())
    gc.callbacks[:] = runner.callbacks
    if args.show is None:
        os.write(1, b"works\n" if mode.works() else b"does nothing\n")
    mode.finish()


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    main()
