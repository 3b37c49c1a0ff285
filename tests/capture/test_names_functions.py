"""How what a function holds is named."""

from __future__ import annotations

import functools
import types
from typing import Any

from support.names import Cases, Node, array, node

CASES = Cases(__name__, __file__)
case, step = CASES.case, CASES.step
test_names, test_every_mark_is_used = CASES.tests()


class Table(dict[Any, Any]):
    def touch(self) -> None: ...  # at: Table


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
