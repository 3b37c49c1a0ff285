"""Stand-ins for libraries, ways to close a cycle, and whose a leak is said to be."""

from __future__ import annotations

import argparse
import functools
import gc
import queue
import types
from collections.abc import Callable
from typing import Any

import numpy

import cyclescope

Way = Callable[[Any], None]


def payload() -> numpy.ndarray[Any, Any]:
    return numpy.zeros(2**20, numpy.uint8)


#: Ways to close a cycle, as a library's own code: ``self`` is the object, ``kept`` the attribute.
SNIPPETS = {
    "itself": "self.kept = self",
    "list": "self.kept = [self]",
    "tuple": "self.kept = ('me', self)",
    "dict": "self.kept = {'me': self}",
    "nested": "self.kept = {'all': [self]}",
    "appended": "self.kept = []\nself.kept.append(self)",
    "keyed": "self.kept = {}\nself.kept['me'] = self",
    "method": "self.kept = self.run",
    "methods": "self.kept = [self.run, self.size]",
    "partial": "self.kept = functools.partial(call, self)",
    "lambda": "self.kept = lambda: self",
    "closure": "def inner():\n    return self\nself.kept = inner",
    "child": "self.kept = Child(self)",
    "child with more": "self.kept = Child(self, given)",
    "children": "self.kept = []\nself.kept.append(Child(self))",
    "linked child": "child = Child(None)\nchild.parent = self\nself.kept = child",
    "by name": "setattr(self, 'kept', self)",
    "by object": "object.__setattr__(self, 'kept', self)",
    "registered method": "self.hooks = []\nself.register(self.run)",
    "registered lambda": "self.hooks = []\nself.register(lambda: self)",
    "property": "child = Child(None)\nchild.owner = self\nself.kept = child",
    "generator": "self.kept = self.each()\nnext(self.kept)",
}

#: Where the library's code does so: ``{body}`` is it.
PLACES = {
    "constructor": "def __init__(self, given=None):\n    super().__init__()\n{body}",
    "method": "def __init__(self, given=None):\n    super().__init__()\n"
    "    self.setup(given)\n\ndef setup(self, given):\n{body}",
    "condition": "def __init__(self, given=None):\n    super().__init__()\n"
    "    if given is not None or True:\n        self.setup()\n"
    "\ndef setup(self, given=3):\n{body}",
    "decorated": "def __init__(self, given=None):\n    super().__init__()\n"
    "    self.setup(given)\n\n@decorated\ndef setup(self, given):\n{body}",
}

#: What the class is.
KINDS = {
    "plain": "class Thing:",
    "slots": "class Thing:\n    __slots__ = ('kept', 'payload', 'hooks', '__weakref__')",
    "derived": "class Base:\n    pass\n\n\nclass Thing(Base):",
    "dictionary": "class Thing(dict):",
    "metaclass": "class Meta(type):\n    pass\n\n\nclass Thing(metaclass=Meta):",
    "setter": "class Thing:\n    def __setattr__(self, name, value):\n"
    "        object.__setattr__(self, name, value)\n",
    "getter": "class Thing:\n    def __getattr__(self, name):\n"
    "        raise AttributeError(name)\n",
}

COMMON = """
import functools


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def call(thing):
    return thing


class Child:
    def __init__(self, parent, more=None):
        self.parent = parent
        self.more = more

    @property
    def owner(self):
        return self._owner

    @owner.setter
    def owner(self, value):
        self._owner = value
"""

METHODS = """
def run(self):
    return 1

def size(self):
    return 2

def each(self):
    yield self
    yield 1

def register(self, hook):
    self.hooks.append(hook)
"""


def indented(text: str, by: int) -> str:
    return "\n".join(" " * by + line if line else line for line in text.split("\n"))


def source(kind: str, place: str, snippet: str) -> str:
    """The text of a library whose ``Thing`` closes a cycle by itself."""
    method = PLACES[place].format(body=indented(SNIPPETS[snippet], 4))
    return f"{COMMON}\n\n{KINDS[kind]}\n{indented(METHODS + method, 4)}\n"


def found(make: Callable[[], object]) -> cyclescope.CycleReport:
    """The leaks that a call leaves behind."""
    gc.collect()
    make()
    report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
    assert report.leaks, "the program is to leak"
    return report


def check_is_of(library: str, make: Callable[[], object]) -> None:
    report = found(make)
    names = [leak.library.name if leak.library else None for leak in report.leaks]
    assert set(names) == {library}, report
    assert report.yours == []
    make()
    assert cyclescope.find_tensor_cycles(devices="any", frozen=False, ignore=[library]).leaks == []


def check_is_no_librarys(
    make: Callable[[], object], others: tuple[str, ...] = ("the standard library", "torch")
) -> None:
    report = found(make)
    assert [leak.library for leak in report.leaks] == [None] * len(report.leaks), report
    text = " ".join(str(report).split())
    assert "In a library" not in text
    assert "not by your code" not in text
    make()
    still = cyclescope.find_tensor_cycles(devices="any", frozen=False, ignore=list(others))
    assert len(still.leaks) == len(report.leaks)


def hold_in_list(thing: Any) -> None:
    thing.extra = [thing]


def hold_in_dict(thing: Any) -> None:
    thing.extra = {"thing": thing}


def hold_itself(thing: Any) -> None:
    thing.extra = thing


def set_by_name(thing: Any) -> None:
    setattr(thing, "ex" + "tra", (thing,))


def method_named(thing: Any) -> Any:
    """A bound method of the object whose function is its library's."""
    for base in type(thing).__mro__:
        for name, value in vars(base).items():
            if isinstance(value, types.FunctionType) and not name.startswith("__"):
                return getattr(thing, name)
    return functools.partial(object.__repr__, thing)


def hold_method(thing: Any) -> None:
    thing.extra = method_named(thing)


def hold_partial(thing: Any) -> None:
    method = method_named(thing)
    thing.extra = functools.partial(getattr(method, "__func__", method), thing)


def hold_lambda(thing: Any) -> None:
    thing.extra = lambda: thing


def hold_closure(thing: Any) -> None:
    def inner() -> object:
        return thing

    thing.extra = inner


def hold_child(thing: Any) -> None:
    child = types.SimpleNamespace(owner=thing)
    thing.extra = child


def hold_another(thing: Any) -> None:
    other = argparse.Namespace()
    other.back = thing
    thing.extra = other


def hold_queue(thing: Any) -> None:
    waiting: queue.Queue[Any] = queue.Queue()
    waiting.put(thing)
    thing.extra = waiting


WAYS: list[Way] = [
    hold_in_list,
    hold_in_dict,
    hold_itself,
    set_by_name,
    hold_method,
    hold_partial,
    hold_lambda,
    hold_closure,
    hold_child,
    hold_another,
    hold_queue,
]

PATIENT = """
import dataclasses


class Thing:
    def __init__(self, parent=None, *hooks):
        self.parent = parent
        self.hooks = list(hooks)
        self.items = []
        self.named = {}
        self.child = None

    def run(self):
        return self.size() + len(self.hooks)

    def size(self):
        return len(self.items)

    def add(self, item):
        self.items.append(item)

    def name(self, key, item):
        self.named[key] = item

    def register(self, hook):
        self.hooks.append(hook)

    def adopt(self, child):
        self.child = child


class Slotted:
    __slots__ = ("run_with", "payload", "extra", "__weakref__")

    def run(self):
        return self.run_with


class Setter(Thing):
    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)


class Getter(Thing):
    def __getattr__(self, name):
        raise AttributeError(name)


class Meta(type):
    pass


class Made(metaclass=Meta):
    def run(self):
        return 1


class Mapping(dict):
    def run(self):
        return len(self)


@dataclasses.dataclass
class Data:
    parent: object = None
    hooks: list = dataclasses.field(default_factory=list)

    def run(self):
        return self.parent
"""
