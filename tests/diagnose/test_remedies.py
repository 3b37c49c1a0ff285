"""Never advised: to drop the tensor, to assign what cannot be, to weaken an only reference."""

from __future__ import annotations

import asyncio
import builtins
import dataclasses
import functools
import gc
import logging
import re
import sys
import types
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import common
import cyclescope
from support.followed import futures

pytestmark = pytest.mark.usefixtures("collector_paused")


class Thing:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def work(self, *args: Any) -> None:
        pass

    def __setattr__(self, name: str, value: Any) -> None:
        vars(self)[name] = value


def leaks_of(make: Callable[[], object]) -> list[cyclescope.Leak]:
    make()
    try:
        return cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    finally:
        gc.collect()


def cuts_of(leaks: list[cyclescope.Leak]) -> list[str]:
    return sorted(cut.edge for leak in leaks for cut in leak.cuts)


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def test_two_cycles_through_a_tensor_are_cut_behind_it(torch: Any) -> None:
    def make() -> None:
        thing = Thing(tensor=torch.zeros(1000))
        thing.tensor.first = thing.tensor.second = thing  # type: ignore[attr-defined]

    assert cuts_of(leaks_of(make)) == [".first", ".second"]


@pytest.mark.parametrize("looked_at", [False, True])
def test_a_layer_is_not_cut(torch: Any, looked_at: bool) -> None:
    """Also where the module's `__dict__` exists already."""

    def make() -> None:
        outer, inner = torch.nn.Linear(9, 9), torch.nn.Linear(9, 9)
        outer.layer = inner
        object.__setattr__(inner, "above", outer)
        if looked_at:
            assert vars(inner)
            assert vars(outer)

    assert cuts_of(leaks_of(make)) == [".above"]


def test_the_dicts_of_a_module_are_not_to_be_weak(torch: Any) -> None:
    def make() -> None:
        outer, inner = torch.nn.Linear(9, 9), torch.nn.Linear(9, 9)
        outer.layer, inner.above = inner, outer
        other = torch.nn.Module()
        vars(other)["_modules"] = outer._modules
        inner.other = other

    for leak in leaks_of(make):
        assert "weak" not in leak.advice or "_modules" not in leak.advice


@pytest.mark.parametrize("names", [("engine", "trainer"), ("partner", "friend"), ("child", "boss")])
def test_a_weak_reference_has_its_condition(names: tuple[str, str]) -> None:
    """Each is the only reference to its object: made weak, the object might be gone at once."""

    def make() -> None:
        thing = Thing(tensor=common.tensor("cpu", 1))
        setattr(thing, names[0], Thing(**{names[1]: thing}))

    (leak,) = leaks_of(make)
    assert "if something else keeps the Thing alive" in leak.advice
    assert leak.after is None


def test_a_weak_reference_without_condition_has_another_that_stays() -> None:
    def make() -> None:
        tensor = common.tensor("cpu", 1)
        first, second, third = Thing(tensor=tensor), Thing(), Thing()
        first.next, second.next = second, third
        second.prev, third.prev = first, second

    (leak,) = leaks_of(make)
    assert ".prev" in cuts_of([leak])
    assert "weak" in leak.advice


def test_what_goes_with_a_weak_reference_keeps_nothing() -> None:
    """Only by its name does a reference point to what the program holds."""

    def make(name: str = "scope") -> None:
        first, second = Thing(tensor=common.tensor("cpu", 1)), Thing()
        for thing in first, second:
            setattr(thing, name, Thing(me=thing))
        vars(second)[name].up = vars(first)[name]

    for leak in leaks_of(make):
        assert "weak" not in leak.advice or "if something else keeps" in leak.advice


class Number(int):
    tensor: Any
    child: Any
    call: Any


def test_what_can_have_no_slot_is_not_to_be_weakly_referable() -> None:
    def child() -> None:
        number = Number(1)
        number.tensor = common.tensor("cpu", 1)
        number.child = Thing(parent=number)

    def closure() -> None:
        number = Number(1)
        number.tensor = common.tensor("cpu", 1)
        number.call = lambda: number

    def partial() -> None:
        number = Number(1)
        number.tensor = common.tensor("cpu", 1)
        number.call = functools.partial(print, number)

    for make in child, closure, partial:
        (leak,) = leaks_of(make)
        assert "weak" not in leak.advice


class Encoder(Thing):
    @functools.singledispatchmethod
    def encode(self, value: object) -> None:
        pass


@pytest.mark.skipif(
    hasattr(vars(Encoder)["encode"], "_method_cache"),
    reason="this Python keeps the object of each such method (gh-127750)",
)
def test_a_function_of_a_library_is_not_to_be_changed() -> None:
    def stored() -> None:
        thing = Encoder(tensor=common.tensor("cpu", 1))
        thing.call = thing.encode

    def contained() -> None:
        thing = Encoder(tensor=common.tensor("cpu", 1))
        thing.calls = [thing.encode]

    for make in stored, contained:
        (leak,) = leaks_of(make)
        assert "Encoder.call" in leak.advice
        assert "apture the values" not in leak.advice
        assert leak.after is None


def test_each_holder_of_a_bound_method_is_a_leak_of_its_own() -> None:
    """No assignment changes `__self__`, by which both cycles lead."""

    def make() -> None:
        agent, environment = Thing(), Thing()
        agent.array = numpy.zeros(1 << 20, dtype=numpy.uint8)
        agent.environment = environment
        agent.own = environment.notify = agent.work

    leaks = leaks_of(make)
    cuts = {cut.edge for leak in leaks for cut in leak.cuts}
    assert cuts == {".own", ".notify"}, leaks


def test_a_hook_that_a_library_wraps_is_not_to_be_changed(torch: Any) -> None:
    def make() -> None:
        thing = Thing(layer=torch.nn.Linear(2, 2))
        thing.layer.register_forward_hook(torch.no_grad()(thing.work))  # type: ignore[attr-defined]

    (leak,) = leaks_of(make)
    assert "apture the values" not in leak.advice
    assert "does not need the bound method `work`" in leak.advice
    assert "`.remove()`" in leak.advice


def step(self: Thing) -> Thing:
    return self


@pytest.mark.parametrize("function", [step, lambda self: self, Thing.work])
def test_a_method_that_no_class_has_is_not_looked_up(function: Any) -> None:
    """And a `WeakMethod` of it may be dead at once."""

    def make(wrap: Callable[[Any], Any]) -> None:
        thing = Thing(tensor=common.tensor("cpu", 1))
        thing.call = wrap(types.MethodType(function, thing))

    for wrap in (lambda it: it), functools.partial, (lambda it: lambda: it()):
        (leak,) = leaks_of(lambda wrap=wrap: make(wrap))  # type: ignore[misc]
        if function is not Thing.work:
            assert leak.after is None
            assert "WeakMethod" not in leak.advice
            assert "by its name" not in leak.advice
            assert "in the class" not in leak.advice


def test_a_callback_that_somebody_unknown_calls_stays_one() -> None:
    """The class of a mock is made for it, and nothing in it is written in Python."""

    def make() -> None:
        thing = Thing(tensor=common.tensor("cpu", 1))
        mock: Any = type("Mock", (), {})()
        thing.mock = mock
        mock.side_effect = thing.work

    (leak,) = leaks_of(make)
    assert "WeakMethod" not in leak.advice


def test_a_callback_that_goes_with_its_holder_keeps_nothing() -> None:
    def make() -> None:
        thing = Thing(tensor=common.tensor("cpu", 1))
        thing.first = lambda: thing
        thing.second = [thing.work]

    for leak in leaks_of(make):
        assert "weakref" not in leak.advice or "if something else keeps" in leak.advice


def test_an_exception_of_a_task_is_not_to_be_assigned() -> None:
    class Problem(Exception):
        pass

    async def fail() -> None:
        raise Problem

    async def run() -> None:
        tensor = common.tensor("cpu", 1)
        job = asyncio.ensure_future(fail())
        try:
            await job
        except Problem:
            assert tensor is not None

    def make() -> None:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(run())
        loop.close()

    (leak,) = leaks_of(make)
    assert cuts_of([leak]) == ["local 'job'"]
    assert "`job`" in leak.advice


def test_an_item_of_a_tuple_is_not_to_be_assigned() -> None:
    State = namedtuple("State", "model data")

    def make() -> None:
        thing = Thing()
        thing.state = State(thing, common.tensor("cpu", 1))

    assert cuts_of(leaks_of(make)) == [".state"]


@dataclasses.dataclass(frozen=True)
class Frozen:
    tensor: Any
    kept: Any = None
    parent: Any = None
    items: list[Any] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class FrozenSlots:
    __slots__ = ("kept", "parent", "tensor")
    tensor: Any
    kept: Any
    parent: Any


class FrozenModel:
    """As a model of Pydantic is."""

    __pydantic_fields__: dict[str, Any] = {}  # noqa: RUF012
    model_config = {"frozen": True}  # noqa: RUF012

    def __init__(self, tensor: Any, kept: Any, parent: Any) -> None:
        vars(self).update(tensor=tensor, kept=kept, parent=parent)


def frozen_in_list(kind: Any, tensor: Any) -> None:
    box: list[Any] = []
    box.append(kind(tensor, box, None))


def frozen_in_dict(kind: Any, tensor: Any) -> None:
    box: dict[str, Any] = {}
    box["one"] = kind(tensor, box, None)


def frozen_function(kind: Any, tensor: Any) -> None:
    def call() -> object:
        return thing

    thing = kind(tensor, call, None)


def frozen_itself(kind: Any, tensor: Any) -> None:
    thing = kind(tensor, None, None)
    object.__setattr__(thing, "kept", thing)


def frozen_parent(kind: Any, tensor: Any) -> None:
    parent = kind(tensor, [], None)
    parent.kept.append(kind(None, None, parent))


@pytest.mark.parametrize("kind", [Frozen, FrozenSlots, FrozenModel])
@pytest.mark.parametrize(
    "program",
    [frozen_in_list, frozen_in_dict, frozen_function, frozen_itself, frozen_parent],
)
def test_attributes_of_what_is_frozen_are_not_to_be_assigned(program: Any, kind: Any) -> None:
    def make() -> None:
        program(kind, common.tensor("cpu", 1))

    (leak,) = leaks_of(make)
    assert "to None" not in leak.advice
    for cut in leak.cuts:
        assert cut.proven
        advice = leak.advice.lower()
        said = "do not keep the frozen" in advice or "make it a property" in advice
        assert cut.edge not in (".kept", ".parent") or said


def test_attributes_of_what_is_not_frozen_are_assigned() -> None:
    def make() -> None:
        thing = Thing(tensor=common.tensor("cpu", 1))
        thing.kept = Thing(parent=thing)

    (leak,) = leaks_of(make)
    assert "to None" in leak.advice


def test_what_becomes_of_a_submodule_is_said(torch: Any) -> None:
    class Block(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.layer(x)

    def registered() -> None:
        first, second = Block(), Block()
        first.inner, second.outer = second, first

    def in_list() -> None:
        block = Block()
        block.inner = torch.nn.ModuleList([Block()])
        block.inner[0].outer = block

    def unregistered() -> None:
        first, second = Block(), Block()
        first.inner = second
        object.__setattr__(second, "outer", first)

    said = "is then no submodule of"
    for make, is_said in [(registered, True), (in_list, True), (unregistered, False)]:
        (leak,) = leaks_of(make)
        assert (said in leak.advice) is is_said, leak.advice


@pytest.mark.parametrize(
    ("name", "article"), [("OSError", "an"), ("UNet", "a"), ("LSTMCell", "an"), ("UserDict", "a")]
)
def test_articles_go_by_sound(name: str, article: str) -> None:
    kind = type(name, (Thing,), {})

    def make() -> None:
        thing = Thing(tensor=common.tensor("cpu", 1))
        thing.partner = kind(parent=thing)

    (leak,) = leaks_of(make)
    text = " ".join(str(leak.advice).split())
    assert f"a {name}" not in text.replace(f"{article} {name}", "")


def test_what_a_library_has_made_is_not_to_be_assigned() -> None:
    """Nobody has written `self.exc_info = …`: it is the record's."""

    def make() -> None:
        thing = Thing(tensor=common.tensor("cpu", 1))
        try:
            raise ValueError
        except ValueError:
            info = sys.exc_info()
            thing.record = logging.LogRecord("a", 1, "f", 1, "m", (), info)
            del info

    (leak,) = leaks_of(make)
    assert "exc_info = " not in (leak.before or "")
    assert "Thing.record" in leak.advice or "LogRecord.exc_info" in leak.advice


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups came with Python 3.11")
def test_the_exceptions_of_a_group_have_tracebacks_of_their_own() -> None:
    make_group: Any = vars(builtins)["ExceptionGroup"]

    def make() -> None:
        tensor = common.tensor("cpu", 1)
        errors: list[Exception] = []
        for number in range(2):
            try:
                raise ValueError(number)
            except ValueError as error:
                errors.append(error)
        try:
            raise make_group("all", errors)
        except Exception as error:
            group = error
        del errors
        assert tensor is not None
        assert group

    (leak,) = leaks_of(make)
    assert "with_traceback(None)" not in leak.advice
    assert "delete `group`" in leak.advice.lower()


def test_all_references_of_a_leak_are_named_in_order() -> None:
    """A remedy that leaves another way open is not told."""

    def make() -> None:
        thing = Thing(tensor=common.tensor("cpu", 1))

        def callback(it: Any = thing) -> Any:
            return it, thing

        thing.callback = callback

    (leak,) = leaks_of(make)
    assert "apture the values" not in leak.advice
    assert "Thing.callback" in leak.advice


class Part:
    def __init__(self, whole: object) -> None:
        self.parent = whole
        self.weights = numpy.zeros(5000)


@pytest.mark.parametrize("number", [3, 20, 40, 200])
@pytest.mark.parametrize("named", [True, False], ids=["attributes", "list"])
def test_what_one_line_made_is_one_leak_however_often_it_ran(number: int, named: bool) -> None:
    def make() -> None:
        whole = Thing()
        parts = [Part(whole) for _ in range(number)]
        if named:
            for index, part in enumerate(parts):
                setattr(whole, f"part{index}", part)
        else:
            whole.parts = parts

    make()
    report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
    (leak,) = report.leaks
    assert {cut.edge for cut in leak.cuts} == {".parent"}
    assert len(leak.cuts) == number
    assert all(cut.proven for cut in leak.cuts)
    assert f"also cut the same reference in {number - 1} other objects like it" in str(report)


def test_functions_of_one_line_are_all_spoken_of() -> None:
    class Table:
        def __init__(self, kind: str) -> None:
            self.array = numpy.zeros(100)
            if kind == "two":
                self.rows = {"a": lambda: self.array, "b": lambda: len(self.array)}
            else:
                self.rows = {str(i): lambda: self.array for i in range(4)}

    (two,) = leaks_of(lambda: Table("two"))
    assert "its owner; another one of this line does too." in two.advice
    (several,) = leaks_of(lambda: Table("several"))
    assert "its owner; 3 more of this line do too." in several.advice


def test_each_variable_with_a_failed_future_is_named() -> None:
    (leak,) = leaks_of(lambda: futures(lambda: numpy.zeros(100), False))
    assert re.search(
        r"Delete the local variables `\w+` and `\w+` before `futures` ends", leak.advice
    )
    assert "`all_of_them`" in leak.advice
    assert "`last`" in leak.advice
