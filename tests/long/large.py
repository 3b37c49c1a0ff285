"""Heaps far larger than usual; run by ``make test-brute``, as they take minutes and gigabytes.

A million random objects against a linear account in Python, and containers of ten million.
"""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

import cyclescope

COUNT = 1_000_000
ARRAYS = 5_000


def random_references(count: int, rng: random.Random) -> list[list[int]]:
    """Chains, small and large cycles, and trees, about one reference for each object."""
    references: list[list[int]] = [[] for _ in range(count)]
    for i in range(count):
        if rng.random() < 0.6:
            references[i].append(min(i + 1, count - 1))
        if rng.random() < 0.15:
            references[i].append(max(0, i - rng.randrange(1, 8)))
        if rng.random() < 0.02:
            references[i].append(rng.randrange(count))
    return references


def reachable(starts: list[int], references: list[list[int]]) -> bytearray:
    """A mark for each object that can be reached, the first ones included."""
    found = bytearray(len(references))
    pending = list(starts)
    while pending:
        here = pending.pop()
        if not found[here]:
            found[here] = 1
            pending += references[here]
    return found


def on_cycles(references: list[list[int]]) -> list[int]:
    """The objects that reach themselves again: Tarjan's algorithm, without recursion."""
    count = len(references)
    number, low = [0] * count, [0] * count
    is_open = bytearray(count)
    stack: list[int] = []
    found: list[int] = []
    last = 0
    for start in range(count):
        if number[start]:
            continue
        calls: list[tuple[int, Iterator[int]]] = []
        last += 1
        number[start] = low[start] = last
        stack.append(start)
        is_open[start] = 1
        calls.append((start, iter(references[start])))
        while calls:
            here, rest = calls[-1]
            for target in rest:
                if not number[target]:
                    last += 1
                    number[target] = low[target] = last
                    stack.append(target)
                    is_open[target] = 1
                    calls.append((target, iter(references[target])))
                    break
                if is_open[target]:
                    low[here] = min(low[here], number[target])
            else:
                calls.pop()
                if calls:
                    above = calls[-1][0]
                    low[above] = min(low[above], low[here])
                if low[here] == number[here]:
                    component: list[int] = []
                    while not component or component[-1] != here:
                        component.append(stack.pop())
                        is_open[component[-1]] = 0
                    if len(component) > 1 or here in references[here]:
                        found += component
    return found


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.usefixtures("collector_paused")
def test_a_million_random_objects(seed: int) -> None:
    rng = random.Random(seed)
    references = random_references(COUNT, rng)
    roots = [rng.randrange(COUNT) for _ in range(COUNT // 20)]
    owners = [rng.randrange(COUNT) for _ in range(ARRAYS)]
    alive = reachable(roots, references)
    dead = [[] if alive[i] else refs for i, refs in enumerate(references)]
    held = reachable(on_cycles(dead), dead)
    lost = [i for i, owner in enumerate(owners) if held[owner] and not alive[owner]]
    kept = [i for i, owner in enumerate(owners) if alive[owner]]
    # Otherwise it would prove little.
    assert min(len(lost), len(kept)) > 50

    objects: list[list[Any]] = [[] for _ in range(COUNT)]
    for here, refs in zip(objects, references, strict=True):
        here += (objects[target] for target in refs)
    gone: set[int] = set()
    arrays = []

    def note(number: int) -> Callable[[object], None]:
        return lambda _: gone.add(number)

    for i, owner in enumerate(owners):
        array = numpy.zeros(i + 1)
        arrays.append(weakref.ref(array, note(i)))
        objects[owner].append(array)
        del array
    still = [objects[root] for root in roots]
    del here, objects
    by_counts = set(gone)
    assert by_counts == set(range(ARRAYS)) - set(lost) - set(kept)

    report = cyclescope.find_tensor_cycles(devices="any")
    assert report.bytes_held == sum(8 * (i + 1) for i in lost)
    assert gone - by_counts == set(lost)
    assert not cyclescope.find_tensor_cycles(devices="any").leaks
    del still
    report = cyclescope.find_tensor_cycles(devices="any")
    assert gone == set(range(ARRAYS))


ENTRIES = 10_000_000

CONTAINER = f"""
import gc, resource, sys, numpy, cyclescope
from collections import deque

gc.disable()


class Node:
    def __init__(self):
        self.array = numpy.zeros(2**17)


def garbage(kind):
    it = Node()
    if kind == "dict":
        it.many = dict.fromkeys(range({ENTRIES}), it)
    elif kind == "set":
        it.many = {{*range({ENTRIES}), it}}
    elif kind == "list of lists":
        it.many = [[] for _ in range({ENTRIES})]
        it.many.append(it)
    else:
        it.many = {{"list": list, "tuple": tuple, "deque": deque}}[kind](range({ENTRIES}))
        it.many += type(it.many)([it])


garbage(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
report = cyclescope.find_tensor_cycles(devices="any")
took = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
(leak,) = report.leaks
assert leak.bytes_held == 2**20, leak
assert len(report.to_html()) < 2**20
print(sys.argv[1], "took", took // 1024, "MiB and", report.pause_us / 1e6, "s", file=sys.stderr)
print(took * 1024)
"""


@pytest.mark.parametrize("kind", ["dict", "set", "list", "tuple", "deque", "list of lists"])
def test_a_container_of_ten_million(kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CONTAINER), kind],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    print(done.stderr)
    # Some words for each object that the collector knows, and for each reference.
    assert int(done.stdout) < 200 * ENTRIES + 2**26
