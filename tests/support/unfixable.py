"""Programs with a leak for which ``cyclescope fix`` is not certain of a patch, and so has none."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass


@dataclass(frozen=True)
class Uncertain:
    """A program for which there is no patch, with its line marked, and a word of the reason."""

    name: str
    source: str
    reason: str

    @property
    def line(self) -> int:
        """The line that is marked."""
        return next(n for n, text in enumerate(self.source.splitlines(), 1) if "# HERE" in text)


def _owner(body: str, use: str = "print(o.cb(1))", *, before: str = "", base: str = "") -> str:
    return f"""
import numpy as np
{before}

class Owner{base}:
    def __init__(self, other=None):
        self.dim = 1
        self.array = np.zeros(1 << 16, np.uint8)
{textwrap.indent(body, " " * 8)}

    def add(self, x):
        return x + self.dim


def main():
    o = Owner()
    {use}
"""


def _work(body: str, before: str = "") -> str:
    return f"""
import numpy as np
import sys
{before}

def work(*arguments):
    array = np.zeros(1 << 16, np.uint8)
{textwrap.indent(body, " " * 4)}


def main():
    work()
"""


CALLBACK = "self.cb = lambda x: x + self.dim  # HERE"
BOUND = "self.cb = self.add  # HERE"
KEEP = "error = None\ntry:\n    int('x')\nexcept ValueError as e:\n    error = e  # HERE\n"
RAISES = "with pytest.raises(ValueError) as e:  # HERE\n    int('x')\n"
PROPERTY = """
    @property
    def cb(self):
        return self.kept

    @cb.setter
    def cb(self, value):
        self.kept = value

"""

UNCERTAIN = [
    Uncertain("taken from its object", _owner(CALLBACK, "f = o.cb; del o; print(f(1))"), "value"),
    Uncertain("called on a temporary", _owner(CALLBACK, "print(Owner().cb(1))"), "value"),
    Uncertain("returned", _owner(CALLBACK, "print((lambda: o.cb)()(1))"), "value"),
    Uncertain("handed on", _owner(CALLBACK, "print(list(map(o.cb, [1])))"), "value"),
    Uncertain("a bound method handed on", _owner(BOUND, "print(list(map(o.cb, [1])))"), "value"),
    Uncertain("compared", _owner(BOUND, "print(o.cb == o.add, o.cb(1))"), "value"),
    Uncertain("by name", _owner(CALLBACK, "print(getattr(o, 'cb')(1))"), "string"),
    Uncertain(
        "by any name", _owner(CALLBACK, "print([getattr(o, n) for n in ['c' + 'b']][0](1))"), "name"
    ),
    Uncertain("by its dictionary", _owner(CALLBACK, "print(vars(o)['c' + 'b'](1))"), "vars"),
    Uncertain(
        "of a copy",
        _owner(CALLBACK, "o = copy.copy(o); print(o.cb(1))", before="import copy"),
        "copy",
    ),
    Uncertain("called by nobody here", _owner(CALLBACK, "print(o.dim)"), "nothing"),
    Uncertain(
        "in a list", _owner("self.cb = [lambda x: x + self.dim]  # HERE", "o.cb[0](1)"), "no"
    ),
    Uncertain(
        "slots",
        _owner(CALLBACK).replace(
            "    def __i", "    __slots__ = 'dim', 'array', 'cb'\n    def __i", 1
        ),
        "slots",
    ),
    Uncertain(
        "no weak references by a decorator",
        _owner(CALLBACK, before="def define(**_):\n    return lambda it: it\n").replace(
            "class Owner", "@define(weakref_slot=False)\nclass Owner"
        ),
        "slots",
    ),
    Uncertain(
        "copied with what it has",
        _owner(CALLBACK, before="from dataclasses import dataclass, replace\n").replace(
            "class Owner", "@dataclass(init=False)\nclass Owner"
        ),
        "copy",
    ),
    Uncertain(
        "derived from a tuple too",
        _owner(CALLBACK) + "\n\nclass Both(Owner, tuple):\n    pass\n",
        "weak",
    ),
    Uncertain("a tuple", _owner(CALLBACK, base="(tuple)").replace("Owner()", "Owner([])"), "weak"),
    Uncertain("finalizer", _owner(CALLBACK) + "\nclass X:\n    def __del__(self): pass\n", "final"),
    Uncertain(
        "captures another object",
        _owner("me = self\nself.cb = lambda x: me.add(x) + self.dim  # HERE"),
        "`me`",
    ),
    Uncertain(
        "captures a parameter", _owner("self.cb = lambda x: (other, self.dim)  # HERE"), "`other`"
    ),
    Uncertain("default", _owner("self.cb = lambda x, me=self: x + me.dim  # HERE"), "default"),
    Uncertain(
        "runs later",
        _owner("self.cb = lambda x: (self.dim for _ in [x])  # HERE", "print(list(o.cb(1)))"),
        "gone",
    ),
    Uncertain(
        "makes a function",
        _owner("self.cb = lambda x: lambda: self.dim  # HERE", "print(o.cb(1)())"),
        "gone",
    ),
    Uncertain(
        "is a generator",
        _owner("def g(x):\n    yield self.dim\nself.cb = g  # HERE", "print(list(o.cb(1)))"),
        "gone",
    ),
    Uncertain(
        "is a coroutine",
        _owner("async def g(x):\n    return self.dim\nself.cb = g  # HERE", "o.cb(1).close()"),
        "gone",
    ),
    Uncertain(
        "calls itself",
        _owner("def g(x):\n    return g(x - 1) if x else self.dim\nself.cb = g  # HERE"),
        "`g`",
    ),
    Uncertain(
        "is used twice",
        _owner("def g(x):\n    return self.dim\nself.cb = g  # HERE\nself.cc = [g]"),
        "also used",
    ),
    Uncertain(
        "is decorated",
        _owner(
            "@str\ndef g(x):\n    return self.dim\nself.cb = g  # HERE",
            "print(o.cb(1) if callable(o.cb) else 0)",
        ),
        "decorated",
    ),
    Uncertain("text of itself", _owner("self.cb = lambda x: f'{self.dim=}'  # HERE"), "text"),
    Uncertain(
        "shares its line", _owner("a = 1; self.cb = lambda x: x + self.dim  # HERE"), "shares"
    ),
    Uncertain(
        "in one line", _owner("if self.dim: self.cb = lambda x: x + self.dim  # HERE"), "shares"
    ),
    Uncertain(
        "two in a line",
        _owner("if self.dim:\n    self.cb = lambda x: self.dim; self.cc = self.add  # HERE"),
        "several",
    ),
    Uncertain("self is another", _owner(CALLBACK + "\nself = None"), "again"),
    Uncertain("weakref is another", _owner(CALLBACK, before="weakref = 1"), "weakref"),
    Uncertain("caches its method", _owner("self.add = self.add  # HERE", "print(o.add(1))"), "add"),
    Uncertain("replaces its method", _owner(BOUND, "o.add = abs; print(o.cb(1))"), "replaced"),
    Uncertain(
        "a property", _owner(CALLBACK).replace("    def add", PROPERTY + "    def add"), "property"
    ),
    Uncertain(
        "a class's",
        _owner(CALLBACK)
        .replace("__init__(self, other=None)", "__new__(self)")
        .replace("def main():\n    o =", "def main():\n    o = Owner; Owner() or"),
        "instance",
    ),
    Uncertain("not Python", _owner(CALLBACK) + "\nprint 'x'\nclass\n", "syntax"),
    Uncertain("an exception returned", _work(KEEP + "return error"), "handed on"),
    Uncertain("an exception in a list", _work(KEEP + "print([error])"), "handed on"),
    Uncertain("an exception on an object", _work(KEEP + "sys.error = error"), "handed on"),
    Uncertain(
        "an exception given away", _work(KEEP + "seen(error)", "def seen(e): pass"), "handed on"
    ),
    Uncertain("a chained exception", _work(KEEP + "print(error.__context__)"), "handed on"),
    Uncertain(
        "an exception in two places",
        _work(KEEP.replace("    error = e", "    print([e])\n    error = e")),
        "handed on",
    ),
    Uncertain("an exception in a closure", _work(KEEP + "f = lambda: error\nprint(f())"), "alone"),
    Uncertain("an exception in a generator", _work(KEEP + "yield 1"), "generator"),
    Uncertain(
        "an exception in an expression that runs later",
        _work(KEEP + "return (len(repr(error)) for _ in '1')"),
        "generator",
    ),
    Uncertain("an exception among all", _work(KEEP + "print(sorted(locals()))"), "locals"),
    Uncertain("a global exception", _work("global error\n" + KEEP), "local variable"),
    Uncertain("an unpacked exception", _work(KEEP.replace("error = e ", "error, x = e, 1 ")), "no"),
    Uncertain("a form feed", _work(KEEP + "\f\nprint(error)"), "form feed"),
    Uncertain("raises, then kept", _work(RAISES + "x = e.value", "import pytest"), "handed on"),
    Uncertain(
        "raises, then returned", _work(RAISES + "return str(e.value)", "import pytest"), "leave"
    ),
    Uncertain(
        "raises within a condition",
        _work(
            "if array.size:\n" + textwrap.indent(RAISES, "    ") + "print(e.value)", "import pytest"
        ),
        "also used",
    ),
    Uncertain(
        "raises in a loop",
        _work(
            "for n in range(2):\n    if n:\n        print(e.type)\n"
            + textwrap.indent(RAISES, "    "),
            "import pytest",
        ),
        "also used",
    ),
    Uncertain("nothing there", "x = 1  # HERE\n", "no attribute of `self` is directly set"),
    Uncertain(
        "passed on",
        "class Owner:\n    def __init__(self, events):\n"
        "        events.on('log', lambda: self.report())  # HERE\n",
        "no attribute of `self` is directly set to a closure",
    ),
]
