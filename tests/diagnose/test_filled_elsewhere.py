"""No line is named as what filled a container if other code may have filled it."""

from __future__ import annotations

import pytest

from support.owners import found
from support.written import Modules

pytestmark = pytest.mark.usefixtures("collector_paused")

PROGRAM = """
import copy
import heapq
import logging
import operator
import random

import numpy


logger = logging.getLogger("silent")


def push(container, item):
    container.append(item)


class Peer:
    def __init__(self):
        self.data = numpy.zeros(1024)
        self.links = []

    def __lt__(self, other):
        return True

    def connect(self, other):
        self.links.append(other)

{more}

def make():
    a = b = Peer()
    {fills}
    return a
"""

GETTER = """    @property
    def others(self):
        return self.links
"""


@pytest.mark.parametrize(
    ("fills", "more"),
    [
        ("links = a.links; links.append(b)", ""),
        ("push(a.links, b)", ""),
        ("push(container=a.links, item=b)", ""),
        ("heapq.heappush(a.links, b)", ""),
        ("add = a.links.append; add(b)", ""),
        ("getattr(a, 'links').append(b)", ""),
        ("operator.attrgetter('links')(a).append(b)", ""),
        ("a.others.append(b)", GETTER),
        ("list(map(a.links.append, [b]))", ""),
        ("operator.setitem(a.links, slice(0, 0), [b])", ""),
        ("a.links.__iadd__([b])", ""),
        ("(a.links or []).append(b) if a.links else (found := a.links).append(b)", ""),
    ],
)
def test_another_line_is_not_named(fills: str, more: str, modules: Modules) -> None:
    text = PROGRAM.replace("{more}", more).replace("{fills}", fills)
    (leak,) = found(modules.load("filled_elsewhere", text).make).leaks
    decoy = text[: text.index("self.links.append")].count("\n") + 1
    assert leak.source is None or leak.source.marked != decoy
    assert f"filled_elsewhere.py:{decoy}: " not in leak.to_text()


@pytest.mark.parametrize(
    "reads",
    [
        "",
        "len(a.links); list(a.links); sorted(a.links, key=id)",
        "print(end='') if a.links else None",
        "[each for each in a.links if each in a.links]",
        "a.links[0].data; a.links.sort(); a.links.index(b)",
        "assert a.links, f'{a.links}'",
        "iter(a.links); print(*a.links); [].extend(a.links); numpy.array([len(a.links)])",
        "random.shuffle(a.links); copy.copy(a.links); logger.info('%s', a.links)",
        "c = a.links + []; del a.links[1:]",
    ],
)
def test_what_only_reads_does_not_matter(reads: str, modules: Modules) -> None:
    fills = f"a.connect(b); {reads}"
    text = PROGRAM.replace("{more}", "").replace("{fills}", fills)
    (leak,) = found(modules.load("filled_elsewhere", text).make).leaks
    assert leak.source is not None
    assert leak.source.marked == text[: text.index("self.links.append")].count("\n") + 1


LOOKUP = """
import numpy


class Filter:
    def __init__(self):
        self.data = numpy.zeros(1024)
        self.kernel = self.compute

    def compute(self):
        return 1

{more}
"""


@pytest.mark.parametrize(
    ("more", "is_advised"),
    [
        ("", True),
        ("Filter.other = None", True),
        ("Filter.compute = lambda self: 2", False),
        ("setattr(Filter, 'compute', lambda self: 2)", False),
        ("def fast(it):\n    it.compute = lambda: 2", False),
    ],
)
def test_a_method_that_is_replaced_is_not_looked_up(
    more: str, *, is_advised: bool, modules: Modules
) -> None:
    text = LOOKUP.replace("{more}", "\n\n" + more)
    (leak,) = found(modules.load("looked_up", text).Filter).leaks
    assert ("by its name" in leak.advice) is is_advised
    assert ("Set `Filter.kernel` to None" in leak.advice) is not is_advised
    assert (leak.after is not None) is is_advised


ARGUMENT = """
import functools

import numpy


class Server:
    def __init__(self):
        self.sessions = set()


def drop(session):
    pass


class Session:
    def __init__(self):
        self.data = numpy.zeros(1024)
        self.sessions = set()
        self.close = functools.partial({function}, self)
"""


def test_a_function_in_c_may_need_the_object_itself(modules: Modules) -> None:
    text = ARGUMENT.replace("{function}", "self.sessions.discard")
    (leak,) = found(modules.load("in_partial", text).Session).leaks
    assert "proxy" not in leak.advice
    assert "Set `Session.close` to None" in leak.advice
    (leak,) = found(
        modules.load("in_partial_2", ARGUMENT.replace("{function}", "drop")).Session
    ).leaks
    assert "weakref.proxy" in leak.advice


FROZEN = """
import numpy


class Vertex:
    def __init__(self):
        self.data = numpy.zeros(1024)
        self.edges = {edges}


class Edge:
    def __init__(self, *ends):
        self.ends = frozenset(ends)


def make():
    vertex, other = Vertex(), Vertex()
    {fills}
"""


@pytest.mark.parametrize(
    ("edges", "fills"),
    [
        ("set()", "vertex.edges.add(Edge(vertex, other))"),
        ("frozenset()", "vertex.edges |= {other}; other.edges |= {vertex}"),
    ],
)
def test_nothing_is_to_be_removed_from_a_frozenset(
    edges: str, fills: str, modules: Modules
) -> None:
    text = FROZEN.replace("{edges}", edges).replace("{fills}", fills)
    (leak,) = found(modules.load("in_frozenset", text).make).leaks
    assert "frozenset" in leak.advice
    assert "emove" not in leak.advice


VIEWS = """
import collections.abc

import numpy


class Registry(collections.abc.Mapping):
    def __init__(self):
        self.data = numpy.zeros(1024)
        self.views = [self.keys(), self.items()]

    def __getitem__(self, key):
        raise KeyError

    def __len__(self):
        return 0

    def __iter__(self):
        return iter(())
"""


def test_a_class_that_python_froze_is_a_librarys(modules: Modules) -> None:
    (leak,) = found(modules.load("views", VIEWS).Registry).leaks
    assert leak.source is not None
    assert leak.source.marked == 10
    assert "`Registry.views`" in leak.advice
