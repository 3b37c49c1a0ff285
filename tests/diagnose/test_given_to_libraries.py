"""A library has made a cycle only of what it is seen to make, and not of what it was given."""

from __future__ import annotations

import argparse
import gc
import unittest
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import cyclescope
from support.written import Modules

pytestmark = pytest.mark.usefixtures("collector_paused")

LIBRARY = """
import functools

class Part:
    def __init__(self, owner):
        self.owner = owner

class Tree:
    def __init__(self):
        self.children = []
        self.rows = {}
        self.notifiers = {}

    def add(self, child):
        self.children.append(child)

    def _remove_at(self, index):
        self.children[index] = None

    def run(self):
        for index, child in enumerate(self.children):
            self._remove_at(index)

    def put(self, row, **cells):
        self.rows[row] = {}
        self.rows[row].update(cells)

    def copied(self):
        other = type(self)()
        other.add(Tree.__new__(type(self)))
        for row in list(self.rows):
            other.put(row, tree=other, cell=row)
        return other

    def fill(self):
        self.add(Tree())

    def observe(self, handler, name):
        self._notify(handler, name)

    def _notify(self, handler, name):
        self.notifiers.setdefault(name, []).append(handler)

    def refresh(self):
        self.notifiers["all"] = [functools.partial(print, 1)]

    def grow(self):
        part = Part(self)
        self.children.append(part)
        return part
"""


def defaults() -> None:
    parser = argparse.ArgumentParser()
    parser.data = numpy.zeros(5000)  # type: ignore[attr-defined]
    parser.set_defaults(parser=parser)


def nested_defaults() -> None:
    parser = argparse.ArgumentParser()
    parser.set_defaults(settings={"parsers": [parser], "data": numpy.zeros(5000)})


def suites() -> None:
    inner, outer = unittest.TestSuite(), unittest.TestSuite()
    inner.data = numpy.zeros(5000)  # type: ignore[attr-defined]
    outer.addTest(inner)
    inner.addTest(outer)


@pytest.mark.parametrize("give", [defaults, nested_defaults, suites], ids=lambda it: it.__name__)
def test_the_standard_library_was_given_it(give: Callable[[], None]) -> None:
    gc.collect()
    give()
    leaks = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert leaks
    # Those that the classes themselves make are beside.
    given = [leak for leak in leaks if "_actions" not in leak.summary]
    assert [leak.library for leak in given] == [None] * len(given)
    assert all("not by your code" not in leak.advice for leak in given)


GIVEN = {
    "to a container": "other = Tree(); other.data = data; tree.add(other); other.add(tree)",
    "to a dict in a dict": "tree.put(1, tree=tree, data=data)",
    "put there": "tree.put(1); tree.rows[1]['tree'] = [tree, data]",
    "a callback": "tree.observe(partial(print, tree, data), 'x')",
}
PROGRAM = """
from functools import partial
from standin_gifts import Tree
def go(data):
    tree = Tree()
    {}
"""


def leaks_of(statements: str, install: Callable[..., Any], modules: Modules) -> list[Any]:
    install("standin_gifts", LIBRARY)
    program = modules.load("uses_gifts", PROGRAM.format(statements))
    gc.collect()
    program.go(numpy.zeros(5000))
    return list(cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks)


@pytest.mark.parametrize("how", GIVEN)
def test_a_library_that_was_given_it_has_not_made_the_cycle(
    how: str, install: Callable[..., Any], modules: Modules
) -> None:
    leaks = leaks_of(GIVEN[how], install, modules)
    assert leaks
    for leak in leaks:
        assert leak.library is None, leak.to_text()
        assert "standin_gifts 1.0 made" not in leak.advice


def test_what_a_library_makes_is_still_its_own(
    install: Callable[..., Any], modules: Modules
) -> None:
    (leak,) = leaks_of("tree.grow().data = data", install, modules)
    assert leak.library is not None
    assert leak.library.name == "standin_gifts"
    assert "is made by standin_gifts 1.0, not by your code" in leak.advice
