"""A leak is blamed on what made the reference, and on nothing beside it."""

from __future__ import annotations

import enum
import gc
from collections import UserList
from collections.abc import Callable
from typing import Any, ClassVar

import numpy
import pytest

import cyclescope

pytestmark = pytest.mark.usefixtures("collector_paused")


class Model:
    def __init__(self) -> None:
        self.weight = numpy.zeros(1000)

    def total(self) -> Any:
        return self.weight.sum()


def leaks_of(make: Callable[[], object]) -> list[Any]:
    make()
    return list(cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks)


def line_of(leak: Any) -> str:
    """The line of the program that a leak shows."""
    assert leak.source is not None
    line: str = leak.source.lines[leak.source.marked - leak.source.line]
    return line.strip()


def test_what_a_class_keeps_is_none_of_the_object_that_it_keeps() -> None:
    def make() -> None:
        model = Model()

        class Adapter:
            inner = model

        Adapter().inner.total()

    (leak,) = leaks_of(make)
    assert leak.cuts[0].edge == ".inner"
    assert "do not keep the Model in the attribute `inner` of the class" in leak.advice
    assert "weight" not in leak.advice


class Stored:
    """A descriptor that keeps the values of all instances."""

    def __init__(self) -> None:
        self.values: dict[int, Any] = {}

    def __get__(self, instance: Any, owner: type) -> Any:
        return self.values[id(instance)][1]

    def __set__(self, instance: Any, value: Any) -> None:
        self.values[id(instance)] = (instance, value)


def test_the_container_of_what_a_class_keeps_is_cut_before_that() -> None:
    def make() -> None:
        class Layer:
            weight = Stored()

        Layer().weight = numpy.zeros(1000)

    (leak,) = leaks_of(make)
    assert leak.cuts[0].edge == ".values"
    assert "Keep no instance of the class in `Stored.values`" in leak.advice


def test_who_only_reads_a_container_is_not_told_to_keep_nothing() -> None:
    def make() -> None:
        cache: dict[int, Any] = {}

        class Layer:
            def __init__(self, key: int) -> None:
                cache[key] = self
                self.weight = numpy.zeros(key)

            def sibling(self, key: int) -> Any:
                return cache.get(key)

        Layer(1000)
        Layer(500)

    leaks = leaks_of(make)
    assert leaks
    for leak in leaks:
        steps = [step.edge.lstrip(".") for step in leak.cycle]
        (method,) = {"__init__", "sibling"} & set(steps)
        assert f"its attribute `{method}` leads back to an instance of it" in leak.advice
        assert f"Keep no instance of the class in `cache`, which `{method}` uses" in leak.advice
        assert "Let the method" not in leak.advice


def test_no_weak_reference_is_advised_to_what_only_the_pool_keeps() -> None:
    def make() -> None:
        class Connection:
            pool: ClassVar[dict[int, Any]] = {}

            def __init__(self, key: int) -> None:
                self.buffer = numpy.zeros(1000)
                self.pool[key] = self

        Connection(1)

    (leak,) = leaks_of(make)
    assert "weakref" not in leak.advice


def test_exceptions_in_a_container_are_named_beside_the_one_in_a_variable() -> None:
    def work(keep: Callable[[ValueError], ValueError]) -> str:
        errors = []
        for array in (numpy.zeros(100), numpy.zeros(1000)):
            try:
                array.reshape(3, 7)
            except ValueError as error:
                errors.append(keep(error))
        worst = max(errors, key=lambda error: len(str(error)))
        return str(worst)

    (leak,) = leaks_of(lambda: work(lambda error: error))
    assert "The local variables `worst` and `errors` of `work`" in leak.advice
    assert "are or contain exceptions (ValueError)" in leak.advice
    assert "Or keep the exceptions without their tracebacks" in leak.advice
    assert leaks_of(lambda: work(lambda error: error.with_traceback(None))) == []


class Failure:
    def __init__(self, error: Exception) -> None:
        self.error = error


def test_no_line_is_shown_that_the_advice_does_not_change() -> None:
    def run(count: int) -> list[Failure]:
        results = []
        for size in range(count):
            array = numpy.zeros(1000 + size)
            try:
                array.reshape(3, 7)
            except ValueError as error:
                results.append(Failure(error))
        return results

    leaks = leaks_of(lambda: run(2))
    assert leaks
    for leak in leaks:
        assert "`Failure.error` keeps a ValueError" in leak.advice
        shown = [] if leak.source is None else [line_of(leak)]
        assert shown in ([], ["self.error = error"])


class Owner(UserList[dict[str, Any]]):
    def __init__(self) -> None:
        super().__init__([{"weight": numpy.zeros(1000)}])
        for group in self.data:
            group["owner"] = self


def test_the_class_of_an_item_is_not_said_to_have_stored_it() -> None:
    (leak,) = leaks_of(Owner)
    assert leak.cuts[0].edge == "['owner']"
    assert "in class `Owner`" not in leak.to_text()


def test_the_line_that_puts_a_function_into_a_dict_that_it_captures() -> None:
    def make() -> None:
        state: dict[str, Any] = {"weight": numpy.zeros(1000)}

        def increase() -> dict[str, Any]:
            state["count"] = state.get("count", 0) + 1
            return state

        def count() -> Any:
            return state["count"]

        state["of_this_test"] = (increase, count)

    (leak,) = leaks_of(make)
    assert line_of(leak) == 'state["of_this_test"] = (increase, count)'


def test_of_two_lines_with_the_same_key_none_is_shown() -> None:
    def make(flag: bool) -> None:
        state: dict[str, Any] = {"weight": numpy.zeros(1000)}

        def increase() -> dict[str, Any]:
            return state

        def count() -> Any:
            return len(state)

        if flag:
            state["twice_here"] = (increase, count)
        else:
            state["twice_here"] = [increase, count]

    (leak,) = leaks_of(lambda: make(flag=True))
    assert leak.cuts[0].edge == "['twice_here']"
    assert leak.source is None or "twice_here" not in line_of(leak)
    gc.collect()


def test_no_line_is_shown_where_another_may_have_put_it() -> None:
    def make(name: str) -> None:
        state: dict[str, Any] = {"weight": numpy.zeros(1000)}

        def increase() -> dict[str, Any]:
            return state

        def count() -> Any:
            return len(state)

        state["put_later"] = None
        state[name] = (increase, count)

    (leak,) = leaks_of(lambda: make("put_later"))
    assert leak.cuts[0].edge == "['put_later']"
    assert leak.source is None


def test_an_enumeration_is_to_be_defined_at_module_level() -> None:
    def make() -> None:
        class Mode(enum.Enum):
            A = "a"

        Mode.table = numpy.zeros(1000)  # type: ignore[attr-defined]

    (leak,) = leaks_of(make)
    assert "Define the class once, at module level" in leak.advice
    assert "No other reference" not in leak.advice
