"""How what classes, modules, descriptors and iterators hold is named."""

from __future__ import annotations

import contextvars
import enum
import itertools
import sys
import types
import weakref
from dataclasses import dataclass, field
from typing import Any, ClassVar

from support.names import Cases, Node, Step, array, node

CASES = Cases(__name__, __file__)
case, step = CASES.case, CASES.step
test_names, test_every_mark_is_used = CASES.tests()


def touch(*args: Any, **keywords: Any) -> None: ...  # at: touch


@case(
    step("type", ".__mro__", label="class ~.class_attribute.<locals>.Made", at="Made"),
    edges=[(".registry", "list"), ("[0]", "class ~.class_attribute.<locals>.Made")],
)
def class_attribute() -> None:
    class Made:  # at: Made
        registry: ClassVar[list[Any]] = []
        data = array()

    Made.registry.append(Made)


@case(
    step("type", ".__mro__", label="class ~.metaclass.<locals>.Meta", at="Meta"),
    edges=[
        (".__class__", "class ~.metaclass.<locals>.Meta"),
        (".made", "class ~.metaclass.<locals>.Made"),
    ],
)
def metaclass() -> None:
    class Meta(type):  # at: Meta
        made: Any
        data = array()

    class Made(metaclass=Meta): ...

    Meta.made = Made


@case(
    step("type", ".__mro__", label="class ~.base.<locals>.Base", at="Base"),
    edges=[
        (".__base__", "class ~.base.<locals>.Base"),
        (".__bases__", "class ~.base.<locals>.Base"),
        (".derived", "class ~.base.<locals>.Derived"),
    ],
)
def base() -> None:
    class Base:  # at: Base
        derived: Any
        data = array()

    class Derived(Base): ...

    Base.derived = Derived


@case(step("module", ".me", label="module made"))
def module() -> None:
    it: Any = types.ModuleType("made")
    it.me = it
    it.data = array()


@case(
    step("dict", "['f']"),
    Step("function", ".__globals__", "function f", "made.py:1"),
    path=("['data']",),
)
def function_globals() -> None:
    namespace: dict[str, Any] = {"data": array(), "__builtins__": {}}
    exec(compile("def f(): pass", "made.py", "exec"), namespace)


@case(
    step("property", ".fget"), step("function", ".me", label="function prop.<locals>.f", at="prop")
)
def prop() -> None:
    def f(self: object) -> None: ...  # at: prop

    f.me = property(f)  # type: ignore[attr-defined]
    f.data = array()  # type: ignore[attr-defined]


@case(
    step("staticmethod", ".__func__"),
    step("function", ".me", label="function static.<locals>.f", at="static"),
)
def static() -> None:
    def f() -> None: ...  # at: static

    f.me = staticmethod(f)  # type: ignore[attr-defined]
    f.__dict__["data"] = array()
    f.me.__dict__.clear()  # type: ignore[attr-defined]


@case(
    step("classmethod", ".__func__"),
    step("function", ".me", label="function class_method.<locals>.f", at="class_method"),
)
def class_method() -> None:
    def f() -> None: ...  # at: class_method

    f.me = classmethod(f)  # type: ignore[attr-defined, arg-type]
    f.__dict__["data"] = array()
    f.me.__dict__.clear()  # type: ignore[attr-defined]


@case(node(".parent"), step("super", ".__self__"))
def super_object() -> None:
    it: Any = Node()
    it.parent = super(Node, it)


@case(
    node(".ref"),
    step("weakref.ReferenceType", ".__callback__"),
    step("method", ".__self__", label="bound method touch", at="touch"),
)
def weakref_callback() -> None:
    it: Any = Node()
    it.ref = weakref.ref(KEPT, types.MethodType(touch, it))


class Kept: ...


KEPT = Kept()


@case(node(".again"), step("itertools.repeat", "an internal reference"))
def iterator() -> None:
    it: Any = Node()
    it.again = itertools.repeat(it)


@case(
    node(".pairs"),
    step("itertools.chain", "an internal reference"),
    step("tuple_iterator", "an internal reference"),
    step("tuple", "[0]"),
    step("tuple", "[0]"),
)
def iterator_of_tuple() -> None:
    it: Any = Node()
    it.pairs = itertools.chain((it,), ())


VARIABLE: contextvars.ContextVar[Any] = contextvars.ContextVar("variable")


@case(
    node(".context"),
    step("_contextvars.Context", "an internal reference"),
    step("hamt", "an internal reference"),
    step("hamt_bitmap_node", "an internal reference"),
)
def context() -> None:
    it: Any = Node()
    it.context = contextvars.Context()
    it.context.run(VARIABLE.set, it)


@dataclass
class Record:
    data: Any = field(default_factory=array)
    me: Any = None


@dataclass(slots=True)
class SlottedRecord:
    data: Any = field(default_factory=array)
    me: Any = None


@case(step("~.Record", ".me"))
def data_class() -> None:
    it = Record()
    it.me = it


@case(step("~.SlottedRecord", ".me"))
def data_class_with_slots() -> None:
    it = SlottedRecord()
    it.me = it


@case(
    step(
        "enum.EnumType" if sys.version_info >= (3, 11) else "enum.EnumMeta",
        ".__mro__",
        label="class ~.made",
    ),
    path=(".RED", ".data"),
)
def enumeration() -> None:
    made = enum.Enum("made", ["RED"])
    made.RED.data = array()  # type: ignore[attr-defined]
