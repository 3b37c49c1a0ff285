"""Where a bound method is given away is the line that a leak names, if it is the only one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.owners import found
from support.written import Modules

pytestmark = pytest.mark.usefixtures("collector_paused")

GIVEN = """
import collections
import sched
import threading

import numpy

from acme_holder import Holder


class Bus:
    def __init__(self):
        self.handlers = collections.defaultdict(list)

    def on(self, name, handler):
        self.handlers[name].append(handler)


class Sender:
    def send(self, function):
        function()


class Stops:
    def __init__(self):
        self.stop = self.tick

    def tick(self):
        pass


class Ticks:
    def __init__(self):
        self.data = numpy.zeros(1024)
        self.keeper = {keeper}
        sender = Sender()
        {gives}

    def tick(self):
        pass
{more}
"""


BEAT = """
class Beat(threading.Timer):
    def __init__(self, owner):
        {gives}

    def take(self, function):
        super().__init__(60, function)
"""


HOLDER = """
class Holder:
    def __init__(self, ticking):
        self.kept = [ticking.tick]
"""


@pytest.mark.parametrize(
    ("keeper", "gives", "more", "is_named"),
    [
        ("Bus()", "self.keeper.on('start', self.tick)", "", True),
        ("sched.scheduler()", "self.keeper.enter(10, 1, self.tick)", "", True),
        ("Holder(self)", "sender.send(self.tick)", "", False),
        ("Bus()", "sender.send(self.tick); self.keeper.on('a', getattr(self, 'tick'))", "", False),
        ("Bus()", "self.keeper.on('start', self.tick); str(self.tick)", "", False),
        ("Bus()", "self.keeper.on('start', self.tick)", "class Both(Ticks, Stops): ...", False),
        ("Beat(self)", "super().__init__(60, owner.tick)", BEAT, True),
        ("Beat(self)", "threading.Timer.__init__(self, 60, owner.tick)", BEAT, True),
        ("Beat(self)", "self.take(owner.tick)", BEAT, False),
    ],
)
def test_where_a_method_is_given_away_is_the_line(
    keeper: str,
    gives: str,
    more: str,
    *,
    is_named: bool,
    modules: Modules,
    install: Callable[..., Any],
) -> None:
    install("acme_holder", HOLDER)
    text = GIVEN if "{gives}" not in more else GIVEN.replace("{gives}", "pass")
    text = text.replace("{more}", more).replace("{keeper}", keeper).replace("{gives}", gives)
    (leak,) = found(modules.load("lines_of_owner", text).Ticks).leaks
    line = text[: text.index(gives)].count("\n") + 1
    assert (leak.source is not None and leak.source.marked == line) is is_named
    assert (f"lines_of_owner.py:{line}: " in " ".join(leak.to_text().split())) is is_named


PARTIAL = """
import functools
from functools import partial

import numpy


class Bus:
    def __init__(self):
        self.handlers = []

    def on(self, handler):
        self.handlers.append(handler)


def count(owner):
    owner.total += 1


{more}


class Counts:
    def __init__(self):
        self.data = numpy.zeros(1024)
        self.bus = Bus()
        {gives}
"""


@pytest.mark.parametrize(
    ("gives", "more", "is_named"),
    [
        ("self.bus.on(partial(count, self))", "", True),
        ("self.bus.on(functools.partial(count, owner=self))", "count(Bus)", True),
        ("self.bus.on(partial(count, self))", "def other(): return partial(count, 1)", False),
        ("self.bus.on(partial(count, self))", "again = count", False),
        ("self.bus.on(partial(globals()['count'], self))", "", False),
        ("self.bus.on(partial(*[count, self]))", "", False),
    ],
)
def test_where_a_partial_is_given_away_is_the_line(
    gives: str, more: str, *, is_named: bool, modules: Modules
) -> None:
    text = PARTIAL.replace("{more}", more and f"try:\n    {more}\nexcept Exception: ...")
    text = text.replace("{gives}", gives)
    (leak,) = found(modules.load("lines_of_partial", text).Counts).leaks
    line = text[: text.index(gives)].count("\n") + 1
    assert (leak.source is not None and leak.source.marked == line) is is_named
