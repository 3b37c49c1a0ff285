"""How what frames, exceptions and suspended functions hold is named."""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterator
from typing import Any

from support.names import Cases, array

CASES = Cases(__name__, __file__)
case, step = CASES.case, CASES.step
test_names, test_every_mark_is_used = CASES.tests()


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
        raise ValueError


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
        box.append(types.TracebackType(last.tb_next, frame, 0, CASES.line("raise deep")))


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


class Model:
    def __init__(self) -> None:  # at: Model
        self.data = array()
        self.hook: Any

    def stream(self) -> Iterator[int]:  # at: Model.stream
        yield 1


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
