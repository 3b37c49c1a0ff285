"""Programs whose events come in no certain order: automatic collections, and threads.

A callback in gc.callbacks, whatever it does, has each automatic collection come an allocation
earlier. So what happens when differs, and what happens at all must not: what an object does at its
end depends on its number alone.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy

from objects import Token, world


def hashed(number: int) -> int:
    """Dice that fall the same for the same number."""
    return (number * 2654435761 + 12345 >> 7) % 1009


class Calm:
    """Does what its number says when it is finalized."""

    def __init__(self, n: int, log: list[Any], kept: list[Any]) -> None:
        self.n, self.log, self.kept = n, log, kept
        self.r: list[Any] = []

    def __del__(self) -> None:
        self.log.append(("del", self.n))
        what = hashed(self.n) % 12
        if what == 0:
            self.kept.append(self)
        elif what == 1 and self.n < 10**6:
            other = Calm(self.n + 10**6, self.log, self.kept)
            other.r.append(other)
        elif what == 2:
            raise ValueError
        elif what == 3:
            self.r.clear()
        elif what == 4:
            gc.collect(self.n % 3)


def generate(it: Calm, log: list[Any]) -> Iterator[None]:
    try:
        yield
    finally:
        log.append(("finally", it.n))


def garbage(first: int, count: int, log: list[Any], kept: list[Any], held: list[Any]) -> None:
    """Makes cycles of objects with numbers from ``first`` on, and lets go of them."""

    def died(n: int) -> Callable[[Any], None]:
        return lambda _: log.append(("weak", n))

    window: list[Calm] = []
    for n in range(first, first + count):
        one = Calm(n, log, kept)
        one.r.append(one if hashed(n) % 3 or not window else window[hashed(n + 1) % len(window)])
        what = hashed(n + 2) % 8
        if what == 0:
            one.r.append(numpy.zeros(8))
            held.append(weakref.ref(one.r[-1], died(n)))
        elif what == 1:
            held.append(weakref.ref(one, died(n)))
        elif what == 2:
            it = generate(one, log)
            next(it)
            one.r.append(it)
            del it
        elif what == 3:
            one.r.append(Token(n))
        window.append(one)
        if len(window) > 5:
            del window[0]


def finish(logs: list[list[Any]], *lists: list[Any]) -> None:
    """Let everything go, and log what happened, sorted."""
    for _ in range(3):
        gc.collect()
    for each in lists:
        each.clear()
    for _ in range(3):
        gc.collect()
    tokens = [event for event in world.log if event[0] in ("token", "unraisable")]
    world.log[:] = sorted(map(repr, sum(logs, tokens)))
    world.log.append(("at the end", gc.get_debug(), len(gc.garbage), gc.isenabled()))


def automatic() -> None:
    """Collections that come by themselves, and often."""
    dice = world.random
    log: list[Any] = []
    kept: list[Any] = []
    held: list[Any] = []
    gc.set_threshold(dice.randint(3, 60), dice.randint(1, 5), dice.randint(1, 5))
    gc.enable()
    garbage(0, dice.randint(20, 150), log, kept, held)
    gc.disable()
    finish([log], kept, held)


def threads(watch: Callable[[], None]) -> None:
    """Some make garbage and collect, one starts and stops a watch, all at once."""
    dice = world.random
    counts = [dice.randint(10, 60) for _ in range(4)]
    logs: list[list[Any]] = [[] for _ in counts]
    kept: list[Any] = []
    held: list[Any] = []

    def work(number: int) -> None:
        for part in range(4):
            first = number * 1000 + part * 100
            garbage(first, counts[number] // 4, logs[number], kept, held)
            gc.collect(part % 3)

    def restart() -> None:
        for _ in range(4):
            watch()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    each = [threading.Thread(target=work, args=(number,)) for number in range(len(counts))]
    each.append(threading.Thread(target=restart))
    for thread in each:
        thread.start()
    for thread in each:
        thread.join()
    sys.setswitchinterval(interval)
    finish(logs, kept, held)
