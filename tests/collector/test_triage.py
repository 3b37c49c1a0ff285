"""Does the watch see a buffer wherever an object of the garbage can hold it?

What functions, cells, tuples, lists and instances refer to is read in their memory, where it is
known how they lie there, and what one function shares with the last is not looked at again. So a
buffer is put into each place of an object in turn, alone and among others of its kind.
"""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import cyclescope

SOME = 20
"""Objects of each kind before and after the one that holds the buffer."""


def function() -> Any:
    """A function with a closure of its own; all else it shares with others made here."""
    value: Any = []
    return lambda: value


def set_closure(value: Any) -> Any:
    return lambda: value


def copied(**parts: Any) -> Any:
    made = function()
    given = {"globals": made.__globals__, "argdefs": None} | parts
    return types.FunctionType(
        made.__code__, given["globals"], "made", given["argdefs"], made.__closure__
    )


def with_attribute(name: str, value: Any) -> Any:
    made = function()
    setattr(made, name, value)
    return made


class Plain:
    """Its instances have their attributes themselves, from CPython 3.11 on."""

    def __init__(self, **attributes: Any) -> None:
        self.first: Any = []
        for name, value in attributes.items():
            setattr(self, name, value)


class Derived(Plain):
    pass


class Slotted(Plain):
    __slots__ = ("slot",)


class Finalized(Plain):
    def __del__(self) -> None:
        pass


class OfC(Plain, Exception):
    """Not only what is made in Python is between it and ``object``."""


def with_dict(made: Plain) -> Plain:
    """The same object, with a dictionary for its attributes."""
    assert vars(made)
    return made


def with_own_dict(made: Plain) -> Plain:
    """The same object, with a dictionary that never was the instance's own."""
    made.__dict__ = dict(vars(made))
    return made


def without_first(made: Plain) -> Plain:
    del made.first
    return made


def of_another_class(made: Plain) -> Plain:
    made.__class__ = Derived
    return made


def buffer() -> Any:
    return numpy.ones(1000)


HOLDERS: dict[str, Callable[[], Any]] = {
    "closure": lambda: set_closure(buffer()),
    "default": lambda: copied(argdefs=(buffer(),)),
    "keyword default": lambda: with_attribute("__kwdefaults__", {"a": buffer()}),
    "attribute": lambda: with_attribute("kept", buffer()),
    "annotation": lambda: with_attribute("__annotations__", {"a": buffer()}),
    "doc": lambda: with_attribute("__doc__", buffer()),
    "module": lambda: with_attribute("__module__", buffer()),
    "globals": lambda: copied(globals={"kept": buffer()}),
    "built-ins": lambda: copied(globals={"__builtins__": {"kept": buffer()}}),
    "cell": lambda: types.CellType(buffer()),
    "first of a tuple": lambda: (buffer(), [], 1),
    "last of a tuple": lambda: (1, [], buffer()),
    "first of a list": lambda: [buffer(), [], 1],
    "last of a list": lambda: [1, [], buffer()],
    "in a tuple that only a tuple holds": lambda: ([], ((buffer(),),)),
    "in a dict that only a list holds": lambda: [{"kept": buffer()}],
    "first of an instance": lambda: Plain(first=buffer()),
    "last of an instance": lambda: Plain(second=1, third=buffer()),
    "instance of many attributes": lambda: Plain(**{f"a{i}": i for i in range(40)}, last=buffer()),
    "instance of a derived class": lambda: Derived(kept=buffer()),
    "slot": lambda: Slotted(slot=buffer()),
    "beside a slot": lambda: Slotted(slot=1, kept=buffer()),
    "instance with a finalizer": lambda: Finalized(kept=buffer()),
    "exception": lambda: OfC(kept=buffer()),
    "instance with a dict": lambda: with_dict(Plain(kept=buffer())),
    "instance with a dict of its own": lambda: with_own_dict(Plain(kept=buffer())),
    "instance without its first": lambda: without_first(Plain(kept=buffer())),
    "instance of another class": lambda: of_another_class(Plain(kept=buffer())),
    "in a tuple that only an instance holds": lambda: Plain(kept=(buffer(),)),
}
if sys.version_info >= (3, 12):
    HOLDERS["type parameter"] = lambda: with_attribute("__type_params__", (buffer(),))


PLAIN: list[Callable[[], Any]] = [
    function,
    lambda: types.CellType([]),
    lambda: ([], 1),
    list,
    Plain,
    lambda: Plain(kept=[]),
    Derived,
    lambda: with_dict(Plain(kept=1)),
]


@pytest.mark.parametrize("others", [0, SOME])
@pytest.mark.parametrize("name", HOLDERS)
def test_a_buffer_is_seen(name: str, others: int, collector_paused: None) -> None:
    reports: list[cyclescope.CycleReport] = []
    with cyclescope.observe_tensor_cycles(reports.append, devices="any"):
        for make in [*PLAIN * others, HOLDERS[name], *PLAIN * others]:
            leak(make())
        gc.collect(0)
    assert [leak.bytes_held for report in reports for leak in report.leaks] == [8000]


def test_where_there_is_none_none_is_seen(collector_paused: None) -> None:
    reports: list[cyclescope.CycleReport] = []
    with cyclescope.observe_tensor_cycles(reports.append, devices="any"):
        for make in PLAIN * SOME:
            leak(make())
        gc.collect(0)
    assert reports == []


def leak(held: Any) -> None:
    """Garbage that refers to itself and to an object."""
    ring: list[Any] = [held]
    ring.append(ring)
