"""Hostile garbage made at random: thousands of small heaps, each built from one number.

``TEST_CASES`` says how many (default: 300), ``TEST_FIRST`` from which number on. A failure names
the number of its heap.
"""

from __future__ import annotations

import functools
import gc
import os
import random
import sys
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

import cyclescope
from support.hostile import BASES, Alarm, hostile, put, render

CASES = int(os.environ.get("TEST_CASES", "300"))
FIRST = int(os.environ.get("TEST_FIRST", "0"))
LOTS = 10

CLASSES = {base: hostile(base) for base in BASES}
ATTACKS = [
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "]]>&amp;<!--",
    '"]; a -> b [label="',
    "\\n\\l\\",
    "line\nbreak\r\n2020-01-01 ERROR forged",
    "\x1b[31m\x1b]0;title\x07",
    "\u202eright to left\u2066",
    "../../../../tmp/x",
    "con.html\0.txt",
    "\ud800",
    "{0.__class__}%s%n",
    "",
    "x" * 5000,
]


class Heap:
    """Random objects, some with a buffer, and random references between them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.survivors: list[Any] = []
        self.parts: list[Any] = [self.part() for _ in range(self.random.randint(1, 12))]
        for _ in range(self.random.randint(1, 30)):
            self.connect()
        for _ in range(self.random.randint(1, 3)):
            self.hold(self.random.choice(self.parts), numpy.zeros(4))

    def part(self) -> Any:
        kinds: list[Callable[[], Any]] = [
            self.instance,
            self.instance,
            self.finalizer,
            self.made_class,
            self.suspended,
            self.exception,
            self.function,
            list,
            dict,
            set,
            deque,
            OrderedDict,
        ]
        return self.random.choice(kinds)()

    def instance(self) -> Any:
        base = self.random.choice(BASES)
        new: Any = base.__new__
        it = new(CLASSES[base], print) if base is functools.partial else new(CLASSES[base])
        if base is types.ModuleType:
            types.ModuleType.__init__(it, "hostile")
        return it

    def text(self) -> str:
        return self.random.choice(ATTACKS)

    def connect(self) -> None:
        self.hold(self.random.choice(self.parts), self.random.choice(self.parts))

    def hold(self, owner: Any, target: Any) -> None:
        """Has one object refer to another, past all that its class does about that."""
        if isinstance_(owner, list):
            list.append(owner, target)
        elif isinstance_(owner, deque):
            deque.append(owner, target)
        elif isinstance_(owner, set):
            set.add(owner, self.wrapped(target))
        elif isinstance_(owner, dict):
            dict.__setitem__(owner, self.random.choice([self.text(), 7, (1, self.text())]), target)
        elif isinstance_(owner, type):
            type.__setattr__(owner, f"a{self.random.randrange(9)}", target)
        elif isinstance_(owner, FUNCTION):
            owner.__dict__[self.text()] = target
        elif isinstance_(owner, GENERATOR):
            owner.send(target)
        else:
            try:
                put(owner, self.random.choice(["me", "other", self.text()]), target)
            except (AttributeError, UnicodeError):
                # No room for attributes, or none of this name.
                self.parts.append([owner, target])

    def wrapped(self, target: Any) -> Any:
        """Something that can be hashed and refers to the target."""
        return Box(target)

    def finalizer(self) -> Any:
        action = self.random.choice([resurrect, delete_globals, collect, fail, look])
        return Finalized(action, self.survivors)

    def made_class(self) -> Any:
        made: Any = type("Made", (self.random.choice([object, CLASSES[object]]),), {})
        type.__setattr__(made, "__qualname__", self.text().replace("\0", "") or "Made")
        type.__setattr__(made, "__module__", self.text())
        return made

    def suspended(self) -> Any:
        it = keep()
        next(it)
        return it

    def exception(self) -> Any:
        try:
            raise ValueError(self.text())
        except ValueError as error:
            return error

    def function(self) -> Any:
        def function() -> None: ...

        function.__qualname__ = function.__name__ = self.text()
        return function


class Box:
    def __init__(self, target: Any) -> None:
        self.target = target


def keep() -> Iterator[None]:
    kept: list[object] = []
    while True:
        kept.append((yield))


GENERATOR = type(keep())


FUNCTION = type(keep)
MRO = vars(type)["__mro__"].__get__


def isinstance_(it: Any, kind: type) -> bool:
    """By the real type, whatever an object or its class says."""
    return kind in MRO(type(it))


class Finalized:
    """Its finalizer does what no finalizer should."""

    def __init__(self, action: Callable[[Any, list[Any]], None], survivors: list[Any]) -> None:
        self.action = action
        self.survivors = survivors

    def __del__(self) -> None:
        self.action(self, self.survivors)


def resurrect(it: Any, survivors: list[Any]) -> None:
    survivors.append(it)


def delete_globals(it: Any, survivors: list[Any]) -> None:
    globals().pop("a_global_of_no_use", None)


def collect(it: Any, survivors: list[Any]) -> None:
    gc.collect()


def fail(it: Any, survivors: list[Any]) -> None:
    raise RuntimeError("in a finalizer")


def look(it: Any, survivors: list[Any]) -> None:
    cyclescope.find_tensor_cycles(devices="any", frozen=False)


@pytest.fixture(scope="module", autouse=True)
def small_heap() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


@pytest.fixture(autouse=True)
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finalizers that raise are part of the game."""
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)


def leave_heap(seed: int) -> tuple[list[weakref.ref[Any]], list[Any]]:
    """Makes a heap that is garbage then.

    Returns references that tell of its end, and the list where finalizers put what they bring back.
    """
    heap = Heap(seed)
    alive = [weakref.ref(part) for part in heap.parts if type(part) is Finalized]
    return alive, heap.survivors


@pytest.mark.parametrize("lot", range(LOTS))
def test_no_heap_harms_or_is_harmed(lot: int) -> None:
    reports: list[cyclescope.CycleReport] = []
    found = 0
    for seed in range(FIRST + lot, FIRST + CASES, LOTS):
        alive, survivors = leave_heap(seed)
        try:
            if seed % 3:
                with Alarm.set():
                    report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
                reports = [report]
            else:
                reports = []
                watch = cyclescope.observe_tensor_cycles(reports.append, devices="any")
                with watch, Alarm.set():
                    gc.collect()
            found += sum(len(report.leaks) for report in reports)
            if seed % 7 == 0:
                with Alarm.set():
                    for report in reports:
                        render(report)
                        harmless(report)
            settle(survivors)
            assert gc.garbage == []
            assert gc.get_debug() == 0
            assert [ref() for ref in alive if ref() is not None] == []
            assert not [c for c in gc.callbacks if type(c).__name__ == "Hook"]
        except BaseException as error:
            raise AssertionError(f"the heap of number {seed}") from error
    assert found > CASES // LOTS // 4


@pytest.mark.parametrize("lot", range(LOTS))
@pytest.mark.parametrize("generation", [0, 1])
def test_no_young_heap_harms_or_is_harmed(generation: int, lot: int) -> None:
    """The same, in collections of the younger objects under a single watch."""
    reports: list[cyclescope.CycleReport] = []
    found = 0
    with cyclescope.observe_tensor_cycles(reports.append, devices="any") as watch:
        for seed in range(FIRST + lot, FIRST + CASES, LOTS):
            alive, survivors = leave_heap(seed)
            try:
                with Alarm.set():
                    gc.collect(generation)
                    watch.flush()
                found += sum(len(report.leaks) for report in reports)
                reports.clear()
                settle(survivors)
                assert (gc.garbage, gc.get_debug()) == ([], 0)
                assert [ref() for ref in alive if ref() is not None] == []
            except BaseException as error:
                raise AssertionError(f"the heap of number {seed}") from error
    assert found > CASES // LOTS // 4


def settle(survivors: list[Any]) -> None:
    """Lets go what finalizers brought back; what that held may come back in its turn."""
    gc.collect()
    while survivors:
        survivors.clear()
        gc.collect()


def harmless(report: cyclescope.CycleReport) -> None:
    """No text of the program acts in what a report is rendered to."""
    page = report.to_html()
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    for text in (str(report), report.to_markdown(), *map(str, report.leaks)):
        assert "\x1b" not in text
        assert "\r" not in text
        assert "\u202e" not in text
        assert "\n2020-01-01 ERROR" not in text
    assert '"]; a -> b' not in report.to_dot().replace('\\"', "")
