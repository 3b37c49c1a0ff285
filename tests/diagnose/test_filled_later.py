"""Lines of references that are made in another place than one would look.

Containers that are filled later, exceptions in variables that other functions set, what a program
does to objects of a library.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import cyclescope
from support.written import Modules

pytestmark = pytest.mark.usefixtures("collector_paused")

BAG = """
import collections
import numpy

class Bag:
    def __init__(self):
        self.data = numpy.zeros(5000)
        self.parts = {made}{first}

    def fill(self, owner, **others):
        {filled}{second}

def go():
    bag = Bag()
    bag.fill(bag, by=bag)
"""
#: What makes the container, what puts the object into it, and whether the line of the former may
#: have as well.
FILLED = {
    "item": ('{"n": 1}', 'self.parts["it"] = owner', False),
    "item of a variable": ('{"n": 1}', 'key = "it"; self.parts[key] = owner', False),
    "update": ('{"n": 1}', "self.parts.update(others)", False),
    "union": ('{"n": 1}', "self.parts |= others", False),
    "new": ('{"n": 1}', "self.parts = self.parts | others", False),
    "other keys": ('{"n": self.data.shape}', 'self.parts["it"] = owner', False),
    "the same key": ('{"it": self.data.shape}', 'self.parts["it"] = owner', True),
    "other keys beside it": ('{"at": numpy.ones(1), "to": [1]}', 'self.parts["it"] = owner', False),
    "a constant of the same key": ('{"it": 1, "to": [1]}', 'self.parts["it"] = owner', False),
    "slots by a comprehension": ("[None for _ in range(4)]", "self.parts[2] = owner", False),
    "deque of nothing": ("collections.deque([], 4)", "self.parts.append(owner)", False),
    "deque of something": (
        "collections.deque([self.data])",
        "self.parts.append(owner)",
        True,
    ),
    "a key of a call": ("dict()", "self.parts[owner] = 1", False),
    "a part of a key": ("{}", 'self.parts["it", owner] = 1', False),
    "a key": ("{1: 2}", "self.parts[owner] = 1", False),
    "a key beside others": ("{}", "self.parts[1] = owner.data; self.parts[owner] = 1", False),
    "a key by default": ("{}", "self.parts.setdefault(owner, 1)", False),
    "a function": ("[print]", "self.parts.append(owner)", False),
    "append": ("[1, 2]", "self.parts.append(owner)", False),
    "what may be anything": ("[numpy.ones(2)]", "self.parts.append(owner)", True),
    "slot": ("[None] * 4", "self.parts[2] = owner", False),
    "slice": ("[None] * 4", "self.parts[1:2] = [owner]", False),
    "all": ("[1]", "self.parts[:] = list(others.values())", False),
    "set": ("{1, 2}", "self.parts.add(owner)", False),
    "deque": ("collections.deque(maxlen=4)", "self.parts.append(owner)", False),
    "defaultdict": ("collections.defaultdict(list)", 'self.parts["it"] = owner', False),
}


def lines_said(leak: Any, module: str) -> list[int]:
    said = " ".join(leak.to_text().split()).split(" Fix: ")[1].split("`")[0]
    return [int(n) for n in re.findall(rf"{module}\.py:(\d+)", said)]


def lines_marked(text: str, mark: str = "# here") -> list[int]:
    return [n for n, line in enumerate(text.splitlines(), 1) if mark in line]


@pytest.mark.parametrize("case", FILLED)
def test_what_fills_a_container_is_the_line(case: str, modules: Modules) -> None:
    made, filled, is_either = FILLED[case]
    first = "  # here" if is_either else ""
    text = BAG.format(made=made, filled=filled, first=first, second="  # here")
    gc.collect()
    modules.load("filled_later", text).go()
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert lines_said(leak, "filled_later") == lines_marked(text)


def test_the_function_of_a_defaultdict_is_there_from_the_beginning(modules: Modules) -> None:
    text = BAG.format(
        made="collections.defaultdict(self.make)",
        first="  # here\n\n    def make(self):\n        return 1",
        filled='self.parts["n"] = [2]',
        second="",
    )
    gc.collect()
    modules.load("filled_later", text).go()
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert lines_said(leak, "filled_later") == lines_marked(text)


KEPT = {
    "captured": """
def go(data):
    failure = None
    try:
        fail(data)
    except OSError as error:
        failure = error  # here
    return (lambda: str(failure))()
""",
    "set by an inner function": """
def go(data):
    def run():
        nonlocal failure
        try:
            fail(data)
        except OSError as error:
            failure = error  # here

    failure = None
    run()
    return str(failure)
""",
    "set beside a function that has its own": """
def go(data):
    failure = None

    def run():
        def inner():
            nonlocal failure
            try:
                fail(data)
            except OSError as error:
                failure = error  # here

        inner()

    def other():
        failure = str(data)
        return failure

    run()
    return str(failure) + other()
""",
    "set by a function within that": """
def go(data):
    failure = None

    def run():
        nonlocal failure

        def inner():
            nonlocal failure
            try:
                fail(data)
            except OSError as error:
                failure = error  # here

        inner()

    run()
    return str(failure)
""",
}


@pytest.mark.parametrize("case", KEPT)
def test_what_keeps_an_exception_is_the_line(case: str, modules: Modules) -> None:
    text = "def fail(data):\n    raise OSError(len(data))\n" + KEPT[case]
    gc.collect()
    modules.load("kept_later", text).go(numpy.zeros(5000))
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert lines_said(leak, "kept_later") == lines_marked(text)


LIBRARY = """
class Node:
    def __init__(self, data, parent=None):
        self.data, self.parent, self.children = data, parent, []
        self.named = {}

    def add(self, node):
        node.parent = self
        self.children.append(node)
        self.named[node.name] = node
"""
PROGRAM = """
import numpy
from standin_tree import Node

class Other:
    def set(self, parent):
        self.parent = parent
        self.children = [parent]

def go():
    root, node = Node(numpy.zeros(5000)), Node(numpy.zeros(5000))
    node.name = "node"
    {}
"""
BY_PROGRAM = [
    "node.parent = root; root.children.append(node)",
    "root.children.append(Node(None, root))",
    "root.named[1] = node; node.parent = root",
    "root.children = [node]; node.parent = root",
]


@pytest.mark.parametrize("statements", BY_PROGRAM)
def test_what_the_program_may_have_stored_is_not_said_to_be_the_librarys(
    statements: str, install: Callable[..., Any], modules: Modules
) -> None:
    install("standin_tree", LIBRARY)
    gc.collect()
    modules.load("uses_tree", PROGRAM.format(statements)).go()
    # Nobody hides the program's own leak by ignoring the library.
    report = cyclescope.find_tensor_cycles(devices="any", frozen=False, ignore=["standin_tree"])
    (leak,) = report.leaks
    assert leak.library is None, leak.to_text()
    assert "not by your code" not in leak.to_text()


def test_what_the_program_stores_in_objects_of_its_own_says_nothing(
    install: Callable[..., Any], modules: Modules
) -> None:
    install("standin_tree", LIBRARY)
    gc.collect()
    program = modules.load("uses_tree", PROGRAM.format("root.add(node)"))
    program.go()
    ignoring = cyclescope.find_tensor_cycles(devices="any", frozen=False, ignore=["standin_tree"])
    assert ignoring.leaks == []
    gc.collect()
    program.go()
    (leak, *_) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert leak.library is not None, leak.to_text()
    # The program has given it the node.
    assert "standin_tree 1.0 made the cycle, perhaps of what your code gave" in leak.advice


def told_without_the_library(program: Any) -> tuple[list[cyclescope.Leak], list[Any]]:
    """What a watch that ignores the library tells and counts of a leak that recurs."""
    told: list[cyclescope.Leak] = []
    gc.collect()
    with cyclescope.observe_tensor_cycles(
        lambda report: told.extend(report.leaks), devices="any", ignore=["standin_tree"]
    ) as watch:
        for _ in range(3):
            program.go()
            gc.collect()
            watch.flush()
    return told, watch.leaks


def test_a_watch_that_ignores_a_library_tells_what_the_program_may_have_stored(
    install: Callable[..., Any], modules: Modules
) -> None:
    install("standin_tree", LIBRARY)
    program = modules.load("mends_tree", PROGRAM.format(BY_PROGRAM[0]))
    told, tallies = told_without_the_library(program)
    assert [leak.library for leak in told] == [None] * 3
    assert [(tally.signature, tally.count) for tally in tallies] == [(told[0].signature, 3)]


def test_a_watch_that_ignores_a_library_does_not_tell_what_it_made(
    install: Callable[..., Any], modules: Modules
) -> None:
    install("standin_tree", LIBRARY)
    program = modules.load("uses_tree", PROGRAM.format("root.add(node)"))
    assert told_without_the_library(program) == ([], [])
