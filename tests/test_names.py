"""Is each kind of reference called what a person would call it, on every version of CPython?

Each case is a little program that makes a cycle through one kind of reference; the cycle holds an
array. Its decorator says what the report must be: every step of the cycle with type, reference,
label and place, and the references from the cycle to the array.
"""

from __future__ import annotations

import builtins
import contextvars
import enum
import functools
import gc
import itertools
import json
import re
import sys
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
)
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest

import cyclescope

sys.path.insert(0, str(Path(__file__).parent.parent / "fixtures"))

import common

torch: Any = vars(common)["torch"]

HERE = Path(__file__).name
SOURCE = Path(__file__).read_text(encoding="utf-8").splitlines()
BYTES = 2**20


class Step(NamedTuple):
    type_name: str
    edge: str
    label: str
    place: str | None
    """File name and line."""


@dataclass(frozen=True)
class Case:
    program: Callable[[], object]
    cycle: list[Step]
    path: list[str]
    edges: set[tuple[str, str]]
    needs_torch: bool


CASES: list[Case] = []


def step(
    type_name: str, edge: str, *, label: str | None = None, at: str | None = None, after: int = 0
) -> Step:
    """A step as it must be reported.

    ``~`` stands for this module; ``at`` names a line of it, and ``after`` counts on from there.
    """
    type_name = type_name.replace("~", __name__)
    label = type_name if label is None else label.replace("~", __name__)
    return Step(type_name, edge, label, None if at is None else f"{HERE}:{line(at) + after}")


def line(mark: str) -> int:
    """The one line that ends in the comment ``# at: mark``."""
    (number,) = (i for i, text in enumerate(SOURCE, 1) if text.endswith(f"# at: {mark}"))
    return number


def node(edge: str) -> Step:
    return step("~.Node", edge, at="Node")


def case(
    *cycle: Step,
    path: Iterable[str] = (".data",),
    edges: Iterable[tuple[str, str]] = (),
    needs_torch: bool = False,
    since: tuple[int, int] = (3, 10),
) -> Callable[[Callable[[], object]], Callable[[], object]]:
    """Register a program and what must be reported of it.

    Args:
        cycle: The steps; the report may begin at any.
        path: The references from a step of the cycle to the array.
        edges: Further references that the drawing must have, and the labels of what they refer to.
        needs_torch: The program is about PyTorch.
        since: The version of Python that first has what the program is about.
    """

    def register(program: Callable[[], object]) -> Callable[[], object]:
        if sys.version_info >= since:
            named = {(name, label.replace("~", __name__)) for name, label in edges}
            CASES.append(Case(program, list(cycle), list(path), named, needs_torch))
        return program

    return register


def array() -> Any:
    return common.tensor("cpu", 1)


@pytest.fixture(scope="module", autouse=True)
def small_heap() -> Iterator[None]:
    """Leave what PyTorch brought out of every look at the heap: it has nothing to do with this."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.program.__name__)
def test_names(case: Case) -> None:
    if case.needs_torch and torch is None:
        pytest.skip("is about PyTorch, which is not installed")
    with common.collector_paused():
        case.program()
        report = cyclescope.find_tensor_cycles(devices="any")
    (leak,) = report.leaks
    found = [
        Step(s.type_name, s.edge, s.label, s.location and Path(s.location).name) for s in leak.cycle
    ]
    turns = [found[i:] + found[:i] for i in range(len(found))]
    assert case.cycle in turns, "\n".join(map(str, found))
    (buffer,) = leak.buffers
    assert buffer.bytes == BYTES
    assert buffer.path == case.path
    assert leak.bytes_held == BYTES
    graph = json.loads(report.to_json())["leaks"][0]["graph"]
    edges = {(edge["name"], graph["nodes"][edge["to"]]["label"]) for edge in graph["edges"]}
    assert edges >= case.edges


class Node:
    """Attributes as most objects have them: inline values from 3.11 on."""

    def __init__(self) -> None:  # at: Node
        self.data: Any = array()


# Attributes, in each form in which CPython stores them.


@case(node(".me"))
def attribute_inline() -> None:
    it: Any = Node()
    it.me = it


@case(node(".me"))
def attribute_after_vars() -> None:
    it: Any = Node()
    it.me = it
    assert vars(it)


@case(node(".me"))
def attribute_set_through_vars() -> None:
    it = Node()
    vars(it)["me"] = it


@case(node(".me"))
def attribute_of_dict_with_broken_key_sharing() -> None:
    it: Any = Node()
    for i in range(100):
        setattr(it, f"x{i}", i)
    it.me = it
    for i in range(100):
        delattr(it, f"x{i}")


@case(node(".me"))
def attribute_of_replaced_dict() -> None:
    it = Node()
    it.__dict__ = {"me": it, "data": it.data}


@case(node(".it's"), path=(r".da\nta",))
def attribute_with_odd_name() -> None:
    it = Node()
    setattr(it, "da\nta", it.__dict__.pop("data"))
    setattr(it, "it's", it)


class Slots:
    __slots__ = ("__weakref__", "data", "me")

    def __init__(self) -> None:  # at: Slots
        self.data = array()
        self.me: Any = self


class InheritedSlots(Slots):
    __slots__ = ("more",)


class SlotsAndDict(Slots):
    def touch(self) -> None: ...  # at: SlotsAndDict


@case(step("~.Slots", ".me", at="Slots"))
def slots() -> None:
    Slots()


@case(step("~.InheritedSlots", ".me"))
def slots_inherited() -> None:
    InheritedSlots()


@case(step("~.InheritedSlots", ".more"), path=(".data",))
def slots_of_both() -> None:
    it: Any = InheritedSlots()
    it.me = None
    it.more = it


@case(step("~.SlotsAndDict", ".extra", at="SlotsAndDict"))
def slots_and_dict() -> None:
    it: Any = SlotsAndDict()
    it.me = None
    it.extra = it


class Pair(tuple[Any, ...]):
    def touch(self) -> None: ...  # at: Pair


class Table(dict[Any, Any]):
    def touch(self) -> None: ...  # at: Table


class Row(list[Any]):
    def touch(self) -> None: ...  # at: Row


class Bag(set[Any]):
    def touch(self) -> None: ...  # at: Bag

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


class FrozenBag(frozenset[Any]):
    def touch(self) -> None: ...  # at: FrozenBag


class Queue(deque[Any]):
    def touch(self) -> None: ...  # at: Queue


class Text(str):
    me: Any
    data: Any

    def touch(self) -> None: ...  # at: Text


class Number(int):
    me: Any
    data: Any

    def touch(self) -> None: ...  # at: Number


@case(step("~.Pair", ".me", at="Pair"), path=("[1]",))
def tuple_subclass_with_dict() -> None:
    it: Any = Pair((0, array()))
    it.me = it


@case(step("~.Table", ".me", at="Table"), path=("['data']",))
def dict_subclass_with_attributes() -> None:
    it: Any = Table(data=array())
    it.me = it


@case(step("~.Table", "['me']", at="Table"))
def dict_subclass_items() -> None:
    it: Any = Table()
    it.data = array()
    it["me"] = it


@case(step("~.Row", ".me", at="Row"), path=("[0]",))
def list_subclass_with_attributes() -> None:
    it: Any = Row([array()])
    it.me = it


@case(step("~.Bag", ".me", at="Bag"))
def set_subclass_with_attributes() -> None:
    it: Any = Bag()
    it.me = it
    it.data = array()


@case(step("~.Bag", "an element", at="Bag"))
def set_subclass_elements() -> None:
    it: Any = Bag()
    it.add(it)
    it.data = array()


@case(step("~.FrozenBag", "an element", at="FrozenBag"), node(".bag"))
def frozenset_subclass_elements() -> None:
    it: Any = Node()
    it.bag = FrozenBag([it])


@case(step("~.Queue", "[1]", at="Queue"))
def deque_subclass() -> None:
    it: Any = Queue([0])
    it.append(it)
    it.data = array()


@case(step("~.Text", ".me", at="Text"))
def str_subclass_with_attributes() -> None:
    it = Text("text")
    it.me = it
    it.data = array()


@case(step("~.Number", ".me", at="Number"))
def int_subclass_with_attributes() -> None:
    it = Number(2**70)
    it.me = it
    it.data = array()


# Containers.


class Hostile:
    def __repr__(self) -> str:
        raise AssertionError("__repr__ was called")

    __str__ = __repr__


def dict_with(key: object) -> None:
    it: dict[Any, Any] = {"data": array()}
    it[key] = it


@case(step("dict", "['loss']"), path=("['data']",))
def key_str() -> None:
    dict_with("loss")


@case(step("dict", r"['it\'s\n']"), path=("['data']",))
def key_str_with_quote() -> None:
    dict_with("it's\n")


@case(step("dict", f"['{'x' * 200}…']"), path=("['data']",))
def key_str_long() -> None:
    dict_with("x" * 1000)


@case(step("dict", "[7]"), path=("['data']",))
def key_int() -> None:
    dict_with(7)


@case(step("dict", "[<int>]"), path=("['data']",))
def key_int_long() -> None:
    dict_with(10**100)


@case(step("dict", "[True]"), path=("['data']",))
def key_bool() -> None:
    dict_with(True)


@case(step("dict", "[None]"), path=("['data']",))
def key_none() -> None:
    dict_with(None)


@case(step("dict", "[1e+16]"), path=("['data']",))
def key_float() -> None:
    dict_with(1e16)


@case(step("dict", r"[b'a\x00']"), path=("['data']",))
def key_bytes() -> None:
    dict_with(b"a\x00")


@case(step("dict", "[('loss', 3)]"), path=("['data']",))
def key_tuple() -> None:
    dict_with(("loss", 3))


@case(step("dict", "[(1,)]"), path=("['data']",))
def key_tuple_of_one() -> None:
    dict_with((1,))


@case(step("dict", f"[<{__name__}.Hostile>]"), path=("['data']",))
def key_object() -> None:
    dict_with(Hostile())


@case(step("dict", f"[(1, <{__name__}.Hostile>)]"), path=("['data']",))
def key_tuple_of_object() -> None:
    dict_with((1, Hostile()))


@case(step("dict", f"[<{__name__}.Text>]"), path=("['data']",))
def key_of_str_subclass() -> None:
    dict_with(Text("loss"))


@case(step("dict", f"[{__name__}.Node]"), path=("['data']",))
def key_class() -> None:
    dict_with(Node)


@case(step("dict", "a key"), node(".table"))
def key_itself() -> None:
    it: Any = Node()
    it.table = {it: 1}


@case(step("list", "[2]"), path=("[1]",))
def list_item() -> None:
    it: list[Any] = [0, array()]
    it.append(it)


@case(step("tuple", "[1]"), step("list", "[0]"), path=("[0]",))
def tuple_item() -> None:
    box: list[Any] = []
    box.append((array(), box))


class Point(NamedTuple):
    data: Any
    back: Any


@case(step("~.Point", ".back"), step("list", "[0]"))
def named_tuple_field() -> None:
    box: list[Any] = []
    box.append(Point(array(), box))


@case(step("set", "an element"), node(".members"))
def set_element() -> None:
    it: Any = Node()
    it.members = {1, it}


@case(step("frozenset", "an element"), node(".members"))
def frozenset_element() -> None:
    it: Any = Node()
    it.members = frozenset([1, it])


@case(step("collections.deque", "[70]"), node(".queue"))
def deque_item() -> None:
    it: Any = Node()
    it.queue = deque(range(70))
    it.queue.append(it)
    it.queue.extend("more")


@case(
    step("collections.defaultdict", ".default_factory"),
    step(
        "function",
        "closure variable 'table'",
        label="function default_factory.<locals>.<lambda>",
        at="default_factory",
    ),
    path=("['data']",),
)
def default_factory() -> None:
    table: Any = defaultdict(lambda: table)  # at: default_factory
    table["data"] = array()


@case(step("collections.OrderedDict", "['me']"), path=("['data']",))
def ordered_dict() -> None:
    it: Any = OrderedDict(data=array())
    it["me"] = it
    it.move_to_end("data")


@case(step("collections.OrderedDict", ".me"), path=("['data']",))
def ordered_dict_attribute() -> None:
    it: Any = OrderedDict(data=array())
    it.me = it


# Functions and what they hold.


@case(
    step(
        "function",
        "closure variable 'it'",
        label="function closure.<locals>.<lambda>",
        at="closure",
    ),
    node(".callback"),
)
def closure() -> None:
    it: Any = Node()
    it.callback = lambda: it  # at: closure


@case(
    step(
        "function",
        "closure variable 'inner'",
        label="function recursive.<locals>.inner",
        at="recursive",
    ),
    path=("closure variable 'data'",),
)
def recursive() -> None:
    data = array()

    def inner() -> Any:  # at: recursive
        return inner, data


@case(
    step("list", "[0]"),
    step(
        "function",
        "closure variable 'box'",
        label="function shared_cell.<locals>.one",
        at="shared_cell",
    ),
    path=("closure variable 'data'",),
)
def shared_cell() -> None:
    box: list[Any] = []
    data = array()

    def one() -> Any:  # at: shared_cell
        return box, data

    def two() -> Any:
        return box

    box.append(one)
    box.append(two)


@case(
    step(
        "function",
        "default argument 'box'",
        label="function default_argument.<locals>.f",
        at="default_argument",
    ),
    step("list", "[0]"),
    path=("default argument 'data'",),
)
def default_argument() -> None:
    box: list[Any] = []

    def f(a: int, box: Any = box, data: Any = array()) -> None: ...  # noqa: B008  # at: default_argument

    box.append(f)


@case(
    step(
        "function",
        "default argument 'box'",
        label="function keyword_only_default.<locals>.f",
        at="keyword_only_default",
    ),
    step("list", "[0]"),
    path=("default argument 'data'",),
)
def keyword_only_default() -> None:
    box: list[Any] = []

    def f(*, box: Any = box, data: Any = array()) -> None: ...  # noqa: B008  # at: keyword_only_default

    box.append(f)


@case(
    step(
        "function", ".me", label="function function_attribute.<locals>.f", at="function_attribute"
    ),
)
def function_attribute() -> None:
    def f() -> None: ...  # at: function_attribute

    f.me = f  # type: ignore[attr-defined]
    f.data = array()  # type: ignore[attr-defined]


class Model:
    def __init__(self) -> None:  # at: Model
        self.data = array()
        self.hook: Any = self.step

    def step(self) -> None: ...  # at: Model.step

    @classmethod
    def make(cls) -> None: ...

    def stream(self) -> Iterator[int]:  # at: Model.stream
        yield 1


@case(
    step("~.Model", ".hook", at="Model"),
    step("method", ".__self__", label="bound method Model.step", at="Model.step"),
)
def bound_method() -> None:
    Model()


@case(
    step("list", "[1]"),
    step("builtin_function_or_method", ".__self__", label="built-in method append"),
    path=("[0]",),
)
def builtin_method() -> None:
    it: list[Any] = [array()]
    it.append(it.append)


@case(step("~.Table", ".hook", at="Table"), step("method-wrapper", ".__self__"), path=("['data']",))
def method_wrapper() -> None:
    it: Any = Table(data=array())
    it.hook = it.__len__


@case(
    node(".hook"),
    step("functools.partial", ".func", at="touch"),
    step("method", ".__self__", label="bound method touch", at="touch"),
)
def partial_function() -> None:
    it: Any = Node()
    it.hook = functools.partial(types.MethodType(touch, it))


def touch(*args: Any, **keywords: Any) -> None: ...  # at: touch


@case(node(".hook"), step("functools.partial", ".args[1]", at="touch"))
def partial_argument() -> None:
    it: Any = Node()
    it.hook = functools.partial(touch, 0, it)


@case(node(".hook"), step("functools.partial", ".keywords['it']", at="touch"))
def partial_keyword() -> None:
    it: Any = Node()
    it.hook = functools.partial(touch, it=it)


@case(step("cell", ".cell_contents"), step("list", "[1]"), path=("[0]",))
def cell_by_itself() -> None:
    cell = types.CellType()
    cell.cell_contents = [array(), cell]


# Frames, exceptions, and what is suspended.


@case(
    step("frame", "local 'frame'", label="frame of frame_local", at="frame_local"),
    path=("local 'data'",),
)
def frame_local() -> None:
    data = array()  # noqa: F841
    frame = sys._getframe()  # noqa: F841  # at: frame_local


@case(
    step("frame", "local 'frame'", label="frame of frame_cell", at="frame_cell"),
    path=("local 'data'",),
)
def frame_cell() -> int:
    data = array()
    frame = sys._getframe()
    return len([lambda: (data, frame)])  # at: frame_cell


@case(
    step(
        "frame",
        "local 'frame'",
        label="frame of frame_asked_for_locals",
        at="frame_asked_for_locals",
    ),
    path=("local 'data'",),
)
def frame_asked_for_locals() -> None:
    data = array()  # noqa: F841
    frame = sys._getframe()
    ask(frame.f_locals)  # at: frame_asked_for_locals


@case(
    step(
        "frame",
        "local 'frame'",
        label="frame of frame_asked_for_locals_early",
        at="frame_asked_for_locals_early",
    ),
    path=("local 'data'",),
)
def frame_asked_for_locals_early() -> None:
    config = {"frame": 1}  # noqa: F841
    ask(sys._getframe().f_locals)
    data = array()  # noqa: F841
    frame = sys._getframe()  # noqa: F841  # at: frame_asked_for_locals_early


def ask(variables: Any) -> None:
    assert variables


class Job:
    error: BaseException

    def fail(self) -> None:  # at: Job
        data = array()  # noqa: F841
        try:
            raise KeyError  # at: raise
        except KeyError as error:
            self.error = error

    def fail_deep(self) -> None:
        data = array()  # noqa: F841
        try:
            self.raising()  # at: raise deep
        except ValueError as error:
            self.error = error

    def raising(self) -> None:
        raise ValueError  # at: raising


@case(
    step("~.Job", ".error", at="Job"),
    step("KeyError", ".__traceback__"),
    step("traceback", ".tb_frame", at="raise"),
    step("frame", "local 'self'", label="frame of fail", at="raise", after=2),
    path=("local 'data'",),
)
def traceback() -> None:
    Job().fail()


@case(
    step("~.Job", ".error", at="Job"),
    step("ValueError", ".__traceback__"),
    step("traceback", ".tb_frame", at="raise deep"),
    step("frame", "local 'self'", label="frame of fail_deep", at="raise deep", after=2),
    path=("local 'data'",),
)
def traceback_deep() -> None:
    Job().fail_deep()


@case(
    step("traceback", ".tb_next", at="raise deep"),
    step("traceback", ".tb_frame", at="raising tb"),
    step("frame", "local 'box'", label="frame of raising_with", at="raising tb"),
    step("list", "[0]"),
    path=("local 'data'",),
)
def traceback_next() -> None:
    box: list[Any] = []
    try:
        raising_with(box)
    except ValueError:
        last: Any = sys.exc_info()[2]
        frame = sys._getframe()
        box.append(types.TracebackType(last.tb_next, frame, 0, line("raise deep")))


def raising_with(box: list[Any]) -> None:
    data = array()  # noqa: F841
    raise ValueError  # at: raising tb


class Failure(Exception):
    node: Any
    data: Any

    def touch(self) -> None: ...  # at: Failure


def failure() -> Any:
    it = Failure()
    it.data = array()
    return it


@case(step("~.Failure", ".__context__", at="Failure"), step("KeyError", ".back"))
def exception_context() -> None:
    it, other = failure(), KeyError()
    it.__context__ = other
    other.back = it  # type: ignore[attr-defined]


@case(step("~.Failure", ".__cause__", at="Failure"), step("KeyError", ".back"))
def exception_cause() -> None:
    it, other = failure(), KeyError()
    it.__cause__ = other
    other.back = it  # type: ignore[attr-defined]


@case(step("~.Failure", ".args[1]", at="Failure"), step("list", "[0]"))
def exception_argument() -> None:
    it = failure()
    it.args = (0, [it])


@case(step("~.Failure", ".node", at="Failure"))
def exception_attribute() -> None:
    it = failure()
    it.node = it


@case(step("~.Failure", ".__notes__", at="Failure"), step("list", "[1]"))
def exception_notes() -> None:
    it = failure()
    it.__notes__ = ["a note", it]


@case(step("StopIteration", ".value"), step("list", "[1]"), path=("[0]",))
def exception_member() -> None:
    box = [array()]
    it = StopIteration()
    it.value = box
    box.append(it)


@case(
    step("ExceptionGroup", ".exceptions[0]"),
    step("~.Failure", ".node", at="Failure"),
    since=(3, 11),
)
def exception_group() -> None:
    it = failure()
    it.node = vars(builtins)["ExceptionGroup"]("group", [it])


@case(
    step("~.Model", ".hook", at="Model"),
    step("generator", "local 'self'", label="generator Model.stream", at="Model.stream"),
)
def generator_local() -> None:
    it = Model()
    it.hook = it.stream()


@case(
    step("~.Model", ".hook", at="Model"),
    step("generator", "local 'self'", label="generator Model.stream", at="Model.stream"),
)
def generator_started() -> None:
    it = Model()
    it.hook = it.stream()
    next(it.hook)


def source(box: list[Any]) -> Generator[int, None, None]:  # at: source
    yield 1


class Ready:
    """An answer that never comes."""

    def __await__(self) -> Generator[None, None, None]:
        yield


async def outer(box: list[Any], data: Any) -> None:  # at: outer
    await inner(box)


async def inner(box: list[Any]) -> None:  # at: inner
    await Ready()


@case(
    step("coroutine", ".cr_await", label="coroutine wrapping", at="wrapping"),
    step("coroutine", "local 'box'", label="coroutine inner", at="inner"),
    step("list", "[0]"),
    path=("local 'data'",),
)
def coroutine_await() -> None:
    box: list[Any] = []
    it = wrapping([inner(box)], array())
    box.append(it)
    it.send(None)


async def wrapping(one: list[Any], data: Any) -> None:  # at: wrapping
    await one.pop()


@case(
    step("generator", ".gi_yieldfrom", label="generator delegating", at="delegating"),
    step("generator", "local 'box'", label="generator source", at="source"),
    step("list", "[0]"),
    path=("local 'data'",),
)
def generator_yield_from() -> None:
    box: list[Any] = []
    it = delegating([source(box)], array())
    box.append(it)
    next(it)


def delegating(one: list[Any], data: Any) -> Generator[int, None, None]:  # at: delegating
    yield from one.pop()


@case(
    step("coroutine", "local 'box'", label="coroutine outer", at="outer"),
    step("list", "[0]"),
    path=("local 'data'",),
)
def coroutine_local() -> None:
    box: list[Any] = []
    it: Coroutine[Any, Any, None] = outer(box, array())
    box.append(it)
    it.send(None)


async def numbers(box: list[Any], data: Any) -> AsyncGenerator[int, None]:  # at: numbers
    yield 1


@case(
    step("async_generator", "local 'box'", label="async generator numbers", at="numbers"),
    step("list", "[0]"),
    path=("local 'data'",),
)
def async_generator() -> None:
    box: list[Any] = []
    box.append(numbers(box, array()))


# Classes, modules, descriptors.


@case(
    step("type", ".registry", label="class ~.class_attribute.<locals>.Made", at="Made"),
    step("list", "[0]"),
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


# PyTorch.


@case(
    step("~.Net", ".parent", at="Net"),
    step("~.Net", ".child", at="Net"),
    path=(".weight",),
    needs_torch=True,
)
def module_parameter() -> None:
    net, child = Net(), Net()
    net.child = child
    object.__setattr__(child, "parent", net)
    net.weight = torch.nn.Parameter(array())


@case(step("~.Net", ".me", at="Net"), path=(".weight",), needs_torch=True)
def module_buffer() -> None:
    net = Net()
    net.register_buffer("weight", array())
    object.__setattr__(net, "me", net)


@case(
    step("~.Net", "._forward_hooks", at="Net"),
    step("collections.OrderedDict", "[1000]"),
    step(
        "function",
        "closure variable 'net'",
        label="function module_hook.<locals>.<lambda>",
        at="module_hook",
    ),
    path=(".weight",),
    needs_torch=True,
)
def module_hook() -> None:
    net = Net()
    net.register_buffer("weight", array())
    number_next_hook(1000)
    net.register_forward_hook(lambda *_: net)  # at: module_hook


def number_next_hook(number: int) -> None:
    torch.utils.hooks.RemovableHandle.next_id = number


if torch is not None:

    class Net(torch.nn.Module):  # type: ignore[misc]
        parent: Any
        child: Any
        weight: Any

        def forward(self) -> None: ...  # at: Net


@case(step("torch.Tensor", ".me"), path=(), needs_torch=True)
def tensor_attribute() -> None:
    it = array()
    it.me = it


@case(
    step("torch.Tensor", "._backward_hooks"),
    step("collections.OrderedDict", "[1000]"),
    step(
        "function",
        "closure variable 'it'",
        label="function tensor_hook.<locals>.<lambda>",
        at="tensor_hook",
    ),
    path=(),
    needs_torch=True,
)
def tensor_hook() -> None:
    it = array().requires_grad_()
    number_next_hook(1000)
    it.register_hook(lambda grad: it)  # at: tensor_hook


def test_every_mark_is_used() -> None:
    marks = [m[1] for text in SOURCE if (m := re.search(r"# at: (.+)$", text))]
    assert len(marks) == len(set(marks))
