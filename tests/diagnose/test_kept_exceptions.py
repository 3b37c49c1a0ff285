"""Exceptions that are kept: all attributes and variables that keep them are named, and how."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import pytest

import cyclescope
from support.owners import found

pytestmark = pytest.mark.usefixtures("collector_paused")

Keep = Callable[[Exception], Any]


def is_kept(program: Callable[[], object]) -> bool:
    """Whether a program leaves an array in a cycle; an error that it raises is its own."""
    gc.collect()
    with contextlib.suppress(ValueError, KeyError):
        program()
    return bool(cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks)


def fail(batch: Any, error: type[Exception] = ValueError) -> None:
    raise error(len(batch))


def without_traceback(error: Exception) -> Exception:
    return error.with_traceback(None)


class FirstAndLast:
    first: Any = None
    last: Any = None

    def run(self, keep: Keep) -> None:
        batch = numpy.zeros(5000)
        for _ in range(3):
            try:
                fail(batch)
            except ValueError as error:
                self.last = keep(error)
                if self.first is None:
                    self.first = keep(error)


class LastAndAll:
    def __init__(self) -> None:
        self.last: Any = None
        self.errors: list[Any] = []

    def run(self, keep: Keep) -> None:
        batch = numpy.zeros(5000)
        for error_type in (ValueError, KeyError):
            try:
                fail(batch, error_type)
            except (ValueError, KeyError) as error:
                self.last = keep(error)
                self.errors.append(keep(error))


class OfEachMethod:
    """Both methods fail alike."""

    def load(self, keep: Keep) -> None:
        batch = numpy.zeros(5000)
        try:
            fail(batch)
        except ValueError as error:
            self.load_error = keep(error)

    def step(self, keep: Keep) -> None:
        batch = numpy.zeros(5000)
        try:
            fail(batch)
        except ValueError as error:
            self.step_error = keep(error)

    def run(self, keep: Keep) -> None:
        self.load(keep)
        self.step(keep)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (FirstAndLast, ["FirstAndLast.first", "FirstAndLast.last"]),
        (LastAndAll, ["LastAndAll.last", "LastAndAll.errors"]),
    ],
)
def test_all_attributes_that_keep_them_are_named(kind: type[Any], names: list[str]) -> None:
    (leak,) = found(lambda: kind().run(lambda error: error)).leaks
    assert leak.pattern == "exception-on-object"
    assert all(f"`{name}`" in leak.advice for name in names)
    assert "without their tracebacks" in leak.advice
    assert not is_kept(lambda: kind().run(without_traceback))
    assert "store the texts" in leak.advice
    assert not is_kept(lambda: kind().run(str))


def test_what_each_method_keeps_is_a_leak_of_its_own() -> None:
    leaks = found(lambda: OfEachMethod().run(lambda error: error)).leaks
    cuts = sorted([cut.edge for cut in leak.cuts] for leak in leaks)
    assert cuts == [[".load_error"], [".step_error"]]
    assert all(leak.pattern == "exception-on-object" for leak in leaks)
    assert all(f"{leak.cuts[0].edge}` keeps a ValueError" in leak.advice for leak in leaks)
    assert not is_kept(lambda: OfEachMethod().run(without_traceback))
    assert not is_kept(lambda: OfEachMethod().run(str))


class ByType:
    def __init__(self) -> None:
        self.errors: dict[type, Any] = {}

    def run(self, keep: Keep) -> None:
        batch = numpy.zeros(5000)
        for error_type in (ValueError, KeyError):
            try:
                fail(batch, error_type)
            except (ValueError, KeyError) as error:
                self.errors[error_type] = keep(error)


def test_errors_of_several_types_may_be_kept_without_their_tracebacks() -> None:
    (leak,) = found(lambda: ByType().run(lambda error: error)).leaks
    assert "Store the exception without its traceback" in leak.advice
    assert not is_kept(lambda: ByType().run(without_traceback))


class Retry:
    last: Any = None

    def call(self, followed: bool) -> None:
        batch = numpy.zeros(5000)
        for _ in range(3):
            try:
                fail(batch)
            except ValueError as error:
                self.last = error
        try:
            raise self.last
        finally:
            if followed:
                self.last = None


def retry(followed: bool) -> None:
    batch, last = numpy.zeros(5000), None
    for _ in range(3):
        try:
            fail(batch)
        except ValueError as error:
            last = error
    try:
        assert last is not None
        raise last
    finally:
        if followed:
            del last


@pytest.mark.parametrize("program", [lambda followed: Retry().call(followed), retry])
def test_one_that_is_raised_again_is_let_go_of_after_that(program: Callable[[bool], None]) -> None:
    def run(followed: bool) -> None:
        with pytest.raises(ValueError, match="5000"):
            program(followed)

    (leak,) = found(lambda: run(False)).leaks
    assert "(in a `finally`, if it is raised again)" in leak.advice
    assert not is_kept(lambda: program(True))


def three_variables(keep: Keep, followed: bool) -> str:
    batch = numpy.zeros(5000)
    first = second = third = None
    try:
        fail(batch)
    except ValueError as error:
        first = keep(error)
    try:
        fail(batch, KeyError)
    except KeyError as error:
        second = keep(error)
    try:
        fail(batch, ZeroDivisionError)
    except ZeroDivisionError as error:
        third = keep(error)
    told = f"{first} {second} {third}"
    if followed:
        del first, second, third
    return told


def test_variables_with_errors_of_several_types_are_one_leak() -> None:
    (leak,) = found(lambda: three_variables(lambda error: error, False)).leaks
    assert leak.pattern == "exception-keeps-traceback"
    for name in ("first", "second", "third", "ValueError", "KeyError", "ZeroDivisionError"):
        assert name in leak.advice
    assert not is_kept(lambda: three_variables(lambda error: error, True))
    assert not is_kept(lambda: three_variables(without_traceback, False))


def test_functions_that_keep_errors_of_several_types_are_a_leak_each() -> None:
    class Loader:
        def load(self) -> None:
            batch = numpy.zeros(5000)
            try:
                fail(batch)
            except ValueError as error:
                self.load_error = error

        def step(self) -> None:
            batch = numpy.zeros(5000)
            try:
                fail(batch, KeyError)
            except KeyError as error:
                self.step_error = error

    def run() -> None:
        loader = Loader()
        loader.load()
        loader.step()

    leaks = found(run).leaks
    assert len(leaks) == 2
    for name in ("Loader.load_error", "Loader.step_error"):
        assert sum(f"`{name}`" in leak.advice for leak in leaks) == 1


class Server:
    def __init__(self) -> None:
        self.data = numpy.zeros(5000)
        self.jobs: list[Any] = []

    async def job(self) -> None:
        await asyncio.sleep(600)

    async def run(self) -> None:
        self.jobs.append(asyncio.create_task(self.job()))
        await asyncio.sleep(0)
        self.jobs[0].cancel()
        await asyncio.gather(*self.jobs, return_exceptions=True)


def test_what_cancelled_a_task_is_kept_by_the_task() -> None:
    loop = asyncio.new_event_loop()
    server = Server()
    loop.run_until_complete(server.run())
    loop.close()
    del server
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    # CPython 3.10 keeps its traceback by itself, too.
    kept = "exception" if sys.version_info < (3, 11) else "CancelledError"
    assert f"A Task keeps the {kept} that it ended with" in leak.advice
    assert "with_traceback" not in leak.advice
    assert "`Server.jobs`" in leak.advice


def test_a_variable_that_an_inner_function_uses_is_not_to_be_deleted() -> None:
    def attempt() -> Callable[[], str]:
        batch = numpy.zeros(5000)
        kept = None
        try:
            fail(batch)
        except ValueError as error:
            kept = error
        return lambda: type(kept).__name__

    assert attempt()() == "ValueError"
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert "captured variable `kept`" in leak.advice
    assert "elete" not in leak.advice


def test_a_frame_that_an_inner_function_uses_is_not_to_be_deleted() -> None:
    def attempt() -> Callable[[], int]:
        batch = numpy.zeros(5000)
        frame = sys._getframe()
        assert len(batch)
        return lambda: frame.f_lineno

    assert attempt()() > 0
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert "Do not keep the frame in `frame`, which an inner function" in leak.advice
    assert "elete" not in leak.advice


def test_functions_that_each_keep_their_exception_are_leaks_of_their_own() -> None:
    def load(batch: Any) -> str:
        kept = None
        try:
            fail(batch)
        except ValueError as error:
            kept = error
        return type(kept).__name__

    def save(batch: Any) -> str:
        failure = None
        try:
            fail(batch)
        except ValueError as error:
            failure = error
        return type(failure).__name__

    def both() -> None:
        batch = numpy.zeros(5000)
        load(batch)
        save(batch)

    both()
    leaks = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    cuts = sorted([cut.edge for cut in leak.cuts] for leak in leaks)
    assert cuts == [["local 'failure'"], ["local 'kept'"]]


class Service:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.batch = numpy.zeros(5000)
        self.timer = loop.call_later(100, self.tick)

    def tick(self) -> None: ...


def test_a_timer_of_a_loop_is_to_be_cancelled() -> None:
    loop = asyncio.new_event_loop()
    Service(loop)
    loop.close()
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert "`cancel()` the TimerHandle" in leak.advice
    assert "_callback` to None" not in leak.advice


class TimerHandle:
    """As asyncio's, but for `cancel`."""

    def __init__(self) -> None:
        self.batch = numpy.zeros(5000)
        self._callback = self.tick

    def tick(self) -> None: ...


def test_a_class_of_the_same_name_has_no_method_to_cancel() -> None:
    TimerHandle()
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert "cancel" not in leak.advice


class Retried:
    def __init__(self) -> None:
        self.batch = numpy.zeros(5000)
        self.latest: Any = None

    def run(self) -> int:
        failed = []
        try:
            fail(self.batch)
        except ValueError as error:
            failed.append(error)
            self.latest = error
        return len(failed)


def test_the_line_that_keeps_an_exception_is_named_if_a_list_keeps_it_too() -> None:
    Retried().run()
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert [cut.edge for cut in leak.cuts] == [".__traceback__"]
    assert leak.source is not None
    marked = leak.source.lines[leak.source.marked - leak.source.line]
    assert marked.strip() == "self.latest = error"
    assert leak.patch is None


class Chosen:
    """Without a `forward` of its class, to which deleting this one would lead back."""

    def __init__(self, *, is_fast: bool) -> None:
        self.batch = numpy.zeros(5000)
        self.forward = self.fast if is_fast else self.slow

    def fast(self) -> None: ...

    def slow(self) -> None: ...


class Declared(Chosen):
    forward: Any = None


@pytest.mark.parametrize("cls", [Chosen, Declared])
def test_forward_is_replaced_only_where_the_class_has_one(cls: type[Chosen]) -> None:
    cls(is_fast=True)
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert leak.pattern == "bound-method-on-owner"
    assert "delete it" not in leak.advice


@dataclass
class Result:
    error: Any = None


def test_a_data_class_is_code_of_the_program() -> None:
    def attempt(keep: Keep) -> Result:
        batch, result = numpy.zeros(5000), Result()
        try:
            fail(batch)
        except ValueError as error:
            result.error = keep(error)
        return result

    attempt(lambda error: error)
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert "Store the exception without its traceback" in leak.advice
    assert not is_kept(lambda: attempt(without_traceback))
