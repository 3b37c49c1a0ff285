"""What several lines store is several leaks, each with advice that can be followed."""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import functools
import gc
import re
import sched
import threading
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple
from unittest import mock

import numpy
import pytest

import cyclescope
from support.owners import found

pytestmark = pytest.mark.usefixtures("collector_paused")


def array() -> Any:
    return numpy.zeros(5000)


def advice(make: Callable[[], object]) -> list[str]:
    return [leak.advice for leak in found(make).leaks]


class Plug:
    callback: Any = None


class Slot:
    def __init__(self, callback: Any = None) -> None:
        self.callback = callback


class Panel:
    """Its slots keep functions of three lines."""

    def __init__(self) -> None:
        self.array = array()
        self.one, self.two, self.three = Plug(), Plug(), Plug()
        self.one.callback = self.lighter
        self.two.callback = self.darker
        self.three.callback = lambda: self.array.sum()

    def lighter(self) -> None: ...

    def darker(self) -> None: ...


def test_each_function_that_the_same_attribute_stores_is_named() -> None:
    all_of_it = " ".join(advice(Panel))
    assert all(name in all_of_it for name in ("`lighter`", "`darker`", "a lambda"))
    text = found(Panel).to_text()
    assert "self.one.callback = self.lighter" in text
    assert "self.two.callback = self.darker" in text


class Same:
    def __init__(self, count: int) -> None:
        self.array = array()
        self.slots = [Slot(self.step) for _ in range(count)]

    def step(self) -> None: ...


def test_one_function_in_many_places_is_one_leak() -> None:
    (told,) = advice(lambda: Same(5))
    assert "`step`" in told


def test_more_functions_than_anybody_reads_are_one_leak() -> None:
    def make() -> None:
        names = [f"step_{number}" for number in range(40)]
        many = type("Many", (), {name: eval(f"lambda self: {name!r}") for name in names})
        owner: Any = many()
        owner.array = array()
        owner.slots = [Slot(getattr(owner, name)) for name in names]

    report = found(make)
    slots = [leak for leak in report.leaks if "Slot" in leak.summary]
    assert len(slots) <= 1, report.to_text()


class Runner:
    def __init__(self) -> None:
        self.array = array()
        self.errors: list[Exception] = []
        self.last: Exception | None = None

    def run(self) -> None:
        try:
            raise ValueError
        except ValueError as error:
            self.errors.append(error)
        try:
            raise TypeError
        except TypeError as error:
            self.last = error


def test_nobody_is_told_to_delete_self() -> None:
    (told,) = advice(lambda: Runner().run())
    assert set(told.split(" keep ")[0].split(" and ")) == {"`Runner.errors`", "`Runner.last`"}
    assert "Delete the local variable" not in told


class Pair(NamedTuple):
    ok: Any
    err: Any


class Request:
    def __init__(self, wrap: Callable[..., Any]) -> None:
        self.array = array()
        self.both = wrap(self.ok, self.err)

    def ok(self) -> None: ...

    def err(self) -> None: ...


@pytest.mark.parametrize("wrap", [lambda *both: both, Pair])
def test_a_weak_method_is_advised_only_where_it_is_enough(wrap: Any) -> None:
    (told,) = advice(lambda: Request(wrap))
    assert "WeakMethod" not in told
    (told,) = advice(lambda: Request(lambda ok, _: (ok, None)))
    assert "WeakMethod" in told


class Batcher:
    def __init__(self) -> None:
        self.array = array()
        self.task: Any = None

    async def loop(self) -> Batcher:
        return self

    async def run(self) -> None:
        self.task = asyncio.create_task(self.loop())
        await self.task


def test_the_result_of_a_task_cannot_be_set() -> None:
    (told,) = advice(lambda: asyncio.run(Batcher().run()))
    assert told.startswith("`Batcher.task` is a Task")
    assert "_result" not in told


class Signal:
    def __init__(self) -> None:
        self.array = array()
        self.listeners: dict[int, tuple[Any, Any]] = {}


class Computed:
    def __init__(self, *deps: Signal) -> None:
        self.deps = deps
        for each in deps:
            each.listeners[id(self)] = (self, self.renew)

    def renew(self) -> None: ...


def test_one_of_two_items_of_a_tuple_is_not_enough() -> None:
    (told,) = advice(lambda: Computed(Signal(), Signal()))
    assert "(it is `[0]`)" not in told


def memo(function: Any) -> Any:
    cache: dict[Any, Any] = {}

    @functools.wraps(function)
    def cached(self: Any) -> Any:
        if self not in cache:
            cache[self] = function(self)
        return cache[self]

    return cached


def of_calculator(decorator: Any) -> str:
    """The advice on a class whose one method is decorated so."""

    def make() -> None:
        class Calculator:
            def __init__(self) -> None:
                self.array = array()

            @decorator  # type: ignore[untyped-decorator]
            def total(self) -> Any:
                return self.array.sum()

        Calculator().total()

    (told,) = advice(make)
    return told


@pytest.mark.parametrize(
    ("decorator", "advice"),
    [
        (memo, "Keep no instance of the class in `cache`, which `total` uses"),
        (functools.lru_cache, "Let the method `total` keep no instance of the class"),
    ],
)
def test_a_class_keeps_its_methods(decorator: Any, advice: str) -> None:
    told = of_calculator(decorator)
    assert "do not keep the" not in told.lower()
    assert advice in told


class Scope(OrderedDict[str, Any]):
    def child(self) -> Scope:
        inner = Scope(__up__=self, array=array())
        self["inner"] = inner
        return inner


def test_a_copy_may_lead_back_as_well() -> None:
    (told,) = advice(lambda: Scope().child())
    assert "copy" not in told
    assert "`['__up__']`" in told
    assert "weak reference" in told


class Cached:
    def __init__(self) -> None:
        self.array = array()
        self.get = functools.lru_cache(8)(self.load)
        self.error: Exception | None = None

    def load(self) -> None: ...

    def run(self) -> None:
        try:
            self.get(1, 2)
        except TypeError as error:
            self.error = error


def test_a_cache_is_told_as_one_beside_an_exception() -> None:
    told = advice(lambda: Cached().run())
    assert any(text.startswith("`Cached.get` is an `lru_cache`") for text in told), told


def test_a_namespace_has_no_forward_of_its_class() -> None:
    def make() -> None:
        space: Any = types.SimpleNamespace(array=array())
        space.forward = lambda: space.array.sum()

    (told,) = advice(make)
    assert "subclass" not in told
    assert "Capture the values" in told


class Model:
    def __init__(self) -> None:
        self.array = array()

    def fit(self) -> None: ...


def test_what_a_mock_wraps_is_not_dropped_by_a_reset() -> None:
    def make() -> None:
        model = Model()
        with mock.patch.object(model, "fit", wraps=model.fit):
            model.fit()

    told = [text for text in advice(make) if "unittest.mock" in text]
    assert told
    assert not any("reset_mock" in text for text in told)


def test_a_spy_hides_the_method_and_is_removed() -> None:
    def make() -> None:
        model: Any = Model()

        def spy(_original: Any = model.fit) -> Any:
            return _original()

        model.fit = spy

    (told,) = advice(make)
    assert "Remove `Model.fit`" in told
    assert "None" not in told


class Event:
    def __init__(self) -> None:
        self.handlers: list[Any] = []


class Widget:
    def __init__(self) -> None:
        self.array = array()
        self.closed = Event()
        self.closed.handlers.append(functools.partial(Widget.finish, self))

    def finish(self) -> None: ...


def test_a_partial_in_a_list_of_another_object_is_told_as_one() -> None:
    (told,) = advice(Widget)
    assert told.startswith("`Event.handlers` contains a `functools.partial`")


class Rows(list[Any]):
    """A container with a class of its own."""


class Cell:
    def __init__(self, rows: Rows) -> None:
        self.array, self.rows = array(), rows
        rows.append(self)


def test_a_reference_to_a_container_of_the_program_can_be_weak() -> None:
    (told,) = advice(lambda: Cell(Rows()))
    assert told.startswith("`Cell.rows` is a Rows, which leads back to the Cell.")
    assert "weak" in told


def test_a_dict_is_called_by_its_variable() -> None:
    def make() -> None:
        held = array()
        state: dict[str, Any] = {}

        def step() -> Any:
            return held, state

        def clear() -> None:
            state.clear()

        state["api"] = {"step": step, "clear": clear}

    report = found(make)
    assert "Remove the item at `['api']` from the dict `state` when" in report.leaks[0].advice
    assert re.search(r"Fix: +\S*test_each_store\.py:\d+: ", report.to_text())
    source = report.leaks[0].source
    assert source is not None
    assert 'state["api"] = ' in source.lines[source.marked - source.line]


def test_no_line_of_a_library_is_the_place_to_change() -> None:
    def make() -> None:
        space: Any = argparse.Namespace(array=array())
        space.extra = {"self": space}

    text = found(make).to_text()
    assert "from the dict `Namespace.extra`" in text
    assert not re.search(r"Fix: +\S*argparse", text)


class Branch(list[Any]):
    def __init__(self, parent: Branch | None) -> None:
        super().__init__()
        self.array, self.parent = array(), parent
        if parent is not None:
            parent.append(self)


def test_an_attribute_of_a_container_is_set_to_none_as_any() -> None:
    (told,) = advice(lambda: Branch(Branch(None)))
    assert "Set `Branch.parent` to None" in told


class Memo:
    """A descriptor that keeps the results of a method."""

    def __init__(self, function: Any) -> None:
        self.function, self.results = function, dict[Any, Any]()

    def __get__(self, owner: Any, _: Any = None) -> Any:
        def cached() -> Any:
            if owner not in self.results:
                self.results[owner] = self.function(owner)
            return self.results[owner]

        return cached


def test_a_descriptor_keeps_its_table() -> None:
    told = of_calculator(Memo)
    assert "to None" not in told
    assert "Keep no instance of the class in `Memo.results`" in told


def retried(function: Any) -> Any:
    errors: list[Exception] = []

    def inner(*args: Any) -> Any:
        for _ in range(2):
            try:
                return function(*args)
            except KeyError as error:
                errors.append(error)
        return None

    return inner


def test_a_list_of_exceptions_that_a_function_fills_stays() -> None:
    def fail() -> None:
        batch = array()
        raise KeyError(len(batch))

    told = advice(lambda: retried(fail)())
    assert told
    assert not any("not `errors`" in text for text in told), told
    assert any("without its traceback" in text for text in told)


@pytest.mark.parametrize("subclass", [False, True])
def test_a_registry_of_instances_is_no_method(subclass: bool) -> None:
    def make() -> None:
        class Pool:
            instances: ClassVar[list[Any]] = []

            def __init__(self) -> None:
                self.array = array()
                self.instances.append(self)

        class Larger(Pool):
            pass

        (Larger if subclass else Pool)()

    (told,) = advice(make)
    assert "Keep no instance of the class in `Pool.instances`" in told
    assert "the method" not in told
    assert "module level" not in told


def test_several_exceptions_of_a_captured_list_are_one_leak() -> None:
    def fail() -> None:
        batch = array()
        raise KeyError(len(batch))

    def make() -> None:
        step = retried(fail)
        step()
        step()

    (told,) = advice(make)
    assert "The captured variable `errors`" in told
    assert "elete" not in told


class Page(dict[str, Any]):
    """A node of a document."""


@pytest.mark.parametrize("kind", [dict, Page])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_children_stay_and_the_way_up_is_cut(kind: Any, count: int) -> None:
    def make() -> None:
        root = kind(children=[])
        for _ in range(count):
            child = kind(array=array(), parent=root)
            root["children"].append(child)

    report = found(make)
    (leak,) = report.leaks
    assert "`['parent']`" in leak.advice
    assert {cut.edge for cut in leak.cuts} == {"['parent']"}
    assert len(leak.cuts) == count


class Beat:
    def __init__(self) -> None:
        self.array = array()
        self.event = sched.scheduler().enter(1, 1, self.beat)

    def beat(self) -> None: ...


def test_what_a_library_calls_is_no_weak_method() -> None:
    (told,) = advice(Beat)
    assert "`Beat.event` contains `beat`" in told
    assert "WeakMethod" not in told


class Timers:
    def __init__(self) -> None:
        self.array = array()
        self.pending = {"one": threading.Timer(60, self.fire)}

    def fire(self) -> None: ...


def test_the_function_of_a_timer_stays() -> None:
    (told,) = advice(Timers)
    assert "`Timers.pending`" in told
    assert "Timer.function" not in told


class Defaults:
    def __init__(self) -> None:
        self.array = array()
        self.items: dict[int, int] = collections.defaultdict(self.make)

    def make(self) -> int:
        return 0


def test_a_default_factory_is_no_item() -> None:
    (told,) = advice(Defaults)
    assert "`Defaults.items` has as its default factory `make`" in told


class Bus:
    def __init__(self) -> None:
        self.handlers: list[Any] = []


class Subscriber:
    """Three of its callbacks keep it, and one does not."""

    def __init__(self, kept: bool = True) -> None:
        self.array = array()
        self.bus = Bus()
        self.bus.handlers += [print, self.on_start, self.on_stop, lambda: self.array.sum()]
        if not kept:
            del self.bus.handlers[1:]

    def on_start(self) -> None: ...

    def on_stop(self) -> None: ...


def test_all_callbacks_of_a_list_that_have_to_go_are_named() -> None:
    (told,) = advice(Subscriber)
    assert "`Bus.handlers`" in told
    remedy = told[told.index(" Remove ") :]
    assert all(name in remedy for name in ("`on_start`", "`on_stop`", "the lambda"))
    assert "print" not in told
    Subscriber(kept=False)
    assert cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks == []


class Table:
    """One line makes all its functions."""

    def __init__(self, weakly: bool = False) -> None:
        self.array = array()
        ref = weakref.ref(self)
        for number in range(12):
            setattr(self, f"column_{number}", self.weak(ref) if weakly else lambda: self.array)

    @staticmethod
    def weak(ref: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: ref().array


def test_the_functions_of_one_line_are_one_leak_whatever_attributes_store_them() -> None:
    (told,) = advice(Table)
    assert "captures `self`" in told
    Table(weakly=True)
    assert cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks == []


@pytest.mark.skipif(not hasattr(asyncio, "TaskGroup"), reason="Python 3.11")
def test_nobody_is_told_to_reuse_an_exception() -> None:
    async def fail(batch: Any) -> None:
        raise ValueError(len(batch))

    async def run() -> None:
        async with vars(asyncio)["TaskGroup"]() as group:
            group.create_task(fail(array()))
            group.create_task(fail(array()))

    def make() -> None:
        with contextlib.suppress(BaseException):
            asyncio.run(run())

    gc.collect()
    make()
    # Some versions of Python let go of the errors.
    for leak in cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks:
        assert "reuse" not in leak.advice
