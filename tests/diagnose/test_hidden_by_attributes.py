"""Whether an attribute can be set to None depends on what its class has under that name."""

from __future__ import annotations

import dataclasses
import gc
from functools import cached_property
from typing import Any

import numpy
import pytest

import cyclescope

pytestmark = pytest.mark.usefixtures("collector_paused")


class Model:
    def __init__(self, kind: Any) -> None:
        self.data = numpy.zeros(5000)
        self.part = kind(self)


class Positive:
    """A descriptor that takes a model and nothing else."""

    def __get__(self, part: Any, kind: Any = None) -> Any:
        return part.__dict__["parent"]

    def __set__(self, part: Any, value: Any) -> None:
        if not isinstance(value, Model):
            raise TypeError(value)
        part.__dict__["parent"] = value


class WithMethod:
    def __init__(self, model: Any) -> None:
        self.parent = model  # type: ignore[method-assign]

    def parent(self) -> None: ...


class WithCached:
    def __init__(self, model: Any) -> None:
        self.__dict__["parent"] = model

    @cached_property
    def parent(self) -> None: ...


class WithDescriptor:
    parent = Positive()

    def __init__(self, model: Any) -> None:
        self.parent = model


class WithSlot:
    __slots__ = ("parent",)

    def __init__(self, model: Any) -> None:
        self.parent = model


class WithDefault:
    parent: Any = None

    def __init__(self, model: Any) -> None:
        self.parent = model


def advice(kind: Any) -> str:
    gc.collect()
    Model(kind)
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    return leak.advice


@pytest.mark.parametrize("kind", [WithMethod, WithCached], ids=lambda it: it.__name__)
def test_an_attribute_that_hides_one_of_the_class_is_removed(kind: Any) -> None:
    said = advice(kind)
    assert f"Remove `{kind.__name__}.parent` when it is no longer needed" in said
    assert "None" not in said
    assert "weak" not in said  # a call of the method would call the reference


def test_what_a_descriptor_takes_is_not_assigned() -> None:
    said = advice(WithDescriptor)
    assert "Do not keep the Model as `WithDescriptor.parent` (a descriptor" in said
    assert "to None" not in said
    assert "weak" not in said


@pytest.mark.parametrize("kind", [WithSlot, WithDefault], ids=lambda it: it.__name__)
def test_any_other_attribute_is_set_to_none(kind: Any) -> None:
    assert f"Set `{kind.__name__}.parent` to None when it is no longer needed" in advice(kind)


class Refuses:
    def __init__(self) -> None:
        object.__setattr__(self, "data", numpy.zeros(5000))
        if len(self.data):  # type: ignore[attr-defined]
            self.called_back = self.size

    def __setattr__(self, name: str, value: Any) -> None:
        if value is None:
            raise ValueError(name)
        object.__setattr__(self, name, value)

    def size(self) -> int:
        return len(self.data)  # type: ignore[attr-defined]


@dataclasses.dataclass(frozen=True, eq=False)
class Frozen:
    data: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "sized_by", self.size)

    def size(self) -> int:
        return len(self.data)


@pytest.mark.parametrize(
    "make", [Refuses, lambda: Frozen(numpy.zeros(5000))], ids=["own", "frozen"]
)
def test_what_refuses_an_assignment_is_not_told_to_assign(make: Any) -> None:
    gc.collect()
    make()
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert "to None" not in leak.advice
    assert "Do not keep it as `" in leak.advice
