"""A class that is made in a function is one leak, with advice that is all there is to do."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Any, ClassVar

import numpy
import pytest

import cyclescope

pytestmark = pytest.mark.usefixtures("collector_paused")


class Weights:
    def __init__(self) -> None:
        self.array = numpy.ones(500)


def array() -> Any:
    return numpy.ones(500)


def annotated() -> object:
    class Config:
        size: int = 1
        weights: Any = array()

    return Config()


def annotated_methods() -> object:
    class Config:
        weights = array()

        def scale(self, by: int) -> Any:
            return self.weights * by

    return Config().scale(3)


def slots() -> object:
    class Config:
        __slots__ = ("size",)
        weights: Any = array()

    return Config()


def derived() -> object:
    class Config(list):  # type: ignore[type-arg]
        weights: Any = array()

    return Config()


def dataclass() -> object:
    @dataclasses.dataclass(eq=False)
    class Config:
        size: int = 1
        weights: Any = Weights()  # noqa: RUF009 - this is the leak.

    return Config()


def frozen_dataclass() -> object:
    @dataclasses.dataclass(eq=False, frozen=True, slots=True)
    class Config:
        weights: Any = Weights()  # noqa: RUF009 - this is the leak.

    return Config()


def made_dataclass() -> object:
    return dataclasses.make_dataclass("Config", [("weights", object, Weights())], eq=False)()


def enumeration() -> object:
    class Mode(enum.Enum):
        TRAIN = 1
        EVAL = 2

    for member in Mode:
        member.table = array()  # type: ignore[attr-defined]
    return Mode.TRAIN


def large_enumeration() -> object:
    class Mode(enum.IntEnum):
        A = 1
        B = 2
        C = 3
        D = 4
        E = 5
        F = 6

    Mode.table = array()  # type: ignore[attr-defined]
    for member in Mode:
        member.own = array()  # type: ignore[attr-defined]
    return Mode


def two_arrays() -> object:
    class Config:
        one = array()
        other = array()

    return Config()


MAKERS = (
    annotated,
    annotated_methods,
    slots,
    derived,
    dataclass,
    frozen_dataclass,
    made_dataclass,
    enumeration,
    large_enumeration,
    two_arrays,
)


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_a_class_made_in_a_function(make: Callable[[], object]) -> None:
    make()
    report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
    (leak,) = report.leaks
    assert leak.pattern == "class-made-at-run-time"
    assert leak.library is None
    text = leak.advice
    assert "once, at module level" in text
    # What cannot be done: these are not the program's to change.
    for name in ("__classdict__", "__mro__`", "__annotate", "__init__`", "__dataclass", "Also"):
        assert name not in text, text
    said_twice = text.count("at module level") > 1
    assert not said_twice


def beside_an_instance() -> object:
    defaults = {"rate": array()}

    class Config:
        instance: Any = None

        def rate(self) -> Any:
            return defaults["rate"]

    Config.instance = Config()
    return Config


def by_instance() -> object:
    class Loader:
        known: ClassVar[Any] = {}

        def load(self) -> Any:
            return self.known.setdefault(self, array())

    return Loader().load()


def of_its_owner() -> object:
    class Owner:
        def __init__(self) -> None:
            self.array = array()
            owner = self

            class Handler:
                def handle(self) -> Any:
                    return owner.array

            self.handler_class = Handler
            self.handler = Handler()

    return Owner()


def leak_of(make: Callable[[], object]) -> cyclescope.Leak:
    make()
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    return leak


def test_a_container_without_instances_is_not_told_to_keep_none() -> None:
    advice = leak_of(beside_an_instance).advice
    assert "no instance" not in advice
    assert "not capture `defaults`" in advice


def test_no_weak_container_is_advised_that_may_not_take_what_is_kept() -> None:
    advice = leak_of(by_instance).advice
    assert advice.endswith("in `Loader.known`: store what belongs to an instance on it.")


def test_a_method_that_captures_its_owner_is_told_once() -> None:
    advice = leak_of(of_its_owner).advice
    assert "not capture `owner`." in advice
    assert " Or let the method" not in advice


def beside_a_function_that_keeps_itself() -> object:
    weights = array()

    def visit(depth: int) -> Any:
        return visit(depth - 1) if depth else weights.sum()

    class Solver:
        def solve(self) -> Any:
            return visit(3)

    return Solver().solve()


def test_to_move_a_class_is_no_advice_where_a_function_keeps_the_memory_too() -> None:
    advice = leak_of(beside_a_function_that_keeps_itself).advice
    assert "module level" not in advice
    assert "not capture `weights`" in advice
