"""Lines that store a reference in an unusual way, and what is said of unusual owners."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import cyclescope
from support.written import Modules

pytestmark = pytest.mark.usefixtures("collector_paused")

HEADER = """
import bisect
import heapq
from dataclasses import dataclass
from typing import Any, NamedTuple
import numpy


class Node:
    def __init__(self):
        self.array = numpy.zeros(5000)
"""

STORES = {
    "two assignments in one": """
class Pair:
    def __init__(self, one, other):
        self.one, self.other = one, other
        one.pair = other.pair = self  # here

def go():
    Pair(Node(), Node())
""",
    "by its name, in the method that sets all attributes": """
class Space:
    def __init__(self, **values):
        object.__setattr__(self, "items", {})
        for name, value in values.items():
            setattr(self, name, value)

    def __setattr__(self, name, value):
        if isinstance(value, Space):
            object.__setattr__(value, "parent", self)  # here
        self.items[name] = value

def go():
    Space(node=Node(), inner=Space())
""",
    "in a heap, by two callers": """
class Scheduler:
    def __init__(self):
        self.heap = []

    def at(self, time, function):
        heapq.heappush(self.heap, (time, function))  # here

class Env(Node):
    def __init__(self):
        super().__init__()
        self.scheduler = Scheduler()
        self.scheduler.at(1, self.tick)

    def tick(self):
        self.scheduler.at(2, self.tick)

def go():
    Env()
""",
    "in a sorted list": """
class Event(Node):
    def __init__(self, time):
        super().__init__()
        self.time = time
        self.queue = Queue(self)

    def __lt__(self, other):
        return self.time < other.time

class Queue:
    __slots__ = ("events",)

    def __init__(self, event):
        self.events = []
        bisect.insort(self.events, event)  # here

def go():
    event = Event(1)
    return event.queue
""",
    "an exception in a list that was made empty": """
def check(values):
    node, problems = Node(), None
    problems = []
    for value in values:
        try:
            int(value)
        except ValueError as error:
            problems.append((value, error))  # here
    return len(problems)

def go():
    check(["one", "2"])
""",
    "an exception by its key": """
def check(values):
    node = Node()
    problems = {"count": 0}
    for value in values:
        try:
            int(value)
        except ValueError as error:
            problems[value] = error  # here
    return len(problems)

def go():
    check(["one", "2"])
""",
}


def leaks_of(text: str, modules: Modules) -> list[cyclescope.Leak]:
    module: Any = modules.load("unusual_stores", HEADER + text)
    gc.collect()
    module.go()
    return cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks


@pytest.mark.parametrize("case", STORES)
def test_the_line_that_stores_it_is_marked(case: str, modules: Modules) -> None:
    (leak,) = leaks_of(STORES[case], modules)
    lines = (HEADER + STORES[case]).splitlines()
    (line,) = [number for number, line in enumerate(lines, 1) if "# here" in line]
    shown = [leak.source, *leak.candidate_sources]
    assert [it.marked for it in shown if it is not None] == [line]


def test_two_stores_into_a_variable_are_not_told_as_one(modules: Modules) -> None:
    once = "            problems.append((value, error))  # here"
    case = STORES["an exception in a list that was made empty"]
    (leak,) = leaks_of(case.replace(once, f"{once}\n{once}"), modules)
    assert leak.source is not None
    assert "problems = []" in leak.source.lines[leak.source.marked - leak.source.line]


HANDED_ON = """
def keep(problems, error):
    problems.append(error)

def check(values):
    node, problems = Node(), []
    for value in values:
        try:
            problems.append(int(value))
        except ValueError as error:
            keep(problems, error)
    return len(problems)

def go():
    check(["one", "2"])
"""
OTHER_KEY = """
def note(report, **more):
    return report | more

def check(values):
    node = Node()
    report = {}
    report["count"] = len(values)
    try:
        int("one")
    except ValueError as error:
        report |= note({}, error=error)
    return len(report)

def go():
    check(["one", "2"])
"""


@pytest.mark.parametrize("text", [HANDED_ON, OTHER_KEY])
def test_what_others_may_have_put_there_is_not_told_as_the_only_one(
    text: str, modules: Modules
) -> None:
    (leak,) = leaks_of(text, modules)
    lines = (HEADER + text).splitlines()
    wrong = {n for n, line in enumerate(lines, 1) if "int(value)" in line or '"count"' in line}
    assert leak.source is None or leak.source.marked not in wrong


def test_what_is_frozen_is_not_said_to_be_impossible(modules: Modules) -> None:
    (leak,) = leaks_of(
        """
@dataclass(frozen=True, eq=False)
class Part:
    array: Any
    parts: tuple = ()
    whole: Any = None

    def __post_init__(self):
        for part in self.parts:
            object.__setattr__(part, "whole", self)

def go():
    Part(numpy.zeros(5000), (Part(numpy.zeros(10)),))
""",
        modules,
    )
    assert "cannot be set later" not in leak.advice
    assert "Do not keep the Part as `Part.whole`; or " in leak.advice
    assert "make this reference weak" in leak.advice


def test_a_named_tuple_that_leads_back_is_told_as_an_object(modules: Modules) -> None:
    (leak,) = leaks_of(
        """
class Group(NamedTuple):
    name: str
    kids: list

class Kid(Node):
    def __init__(self, group):
        super().__init__()
        self.group = group
        group.kids.append(self)

def go():
    group = Group("a", [])
    Kid(group), Kid(group)
""",
        modules,
    )
    assert leak.advice.startswith("`Group.kids` is a list, which leads back to the Group. ")
    assert "Do not put" not in leak.advice
    assert "keep weak references there" in leak.advice


def test_an_item_is_removed_only_when_it_is_no_longer_needed(modules: Modules) -> None:
    (leak,) = leaks_of(
        """
@dataclass(frozen=True, eq=False)
class Step:
    array: Any
    following: list

    def run(self):
        return self.array

def go():
    first, second = Step(numpy.zeros(5000), []), Step(numpy.zeros(5000), [])
    first.following.append(second)
    second.following.append(first)
""",
        modules,
    )
    assert "when it is no longer needed; or keep a weak reference there" in leak.advice


NESTED = """
class Menu(Node):
    def __init__(self):
        super().__init__()
        self.commands = []
        for name in "abc":
            self.commands.append(("do " + name, lambda: self.array, name))

def go():
    Menu()
"""


def test_all_functions_of_a_line_are_counted(modules: Modules) -> None:
    (leak,) = leaks_of(NESTED, modules)
    assert "; 2 more of this line do too" in leak.advice
