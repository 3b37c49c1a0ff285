"""Blocks of code that must not leak a tensor through a reference cycle."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Sequence
from types import CoroutineType, FunctionType, MethodType, TracebackType
from typing import Any, TypeVar, overload

from cyclescope import _native
from cyclescope._devices import Devices
from cyclescope._native import CycleReport
from cyclescope._off import OFF
from cyclescope._settings import check_min_bytes
from cyclescope._system import collect
from cyclescope._watch import STOP_SECONDS, Watch, at_least, resolve, say_unseen

_Function = TypeVar("_Function", bound=Callable[..., Any])

CLEAN_UP_ROUNDS = 3
"""Maximum number of collections before a block: finalizers may leave new garbage."""


class TensorCycleError(AssertionError):
    """A reference cycle kept a tensor alive where that is forbidden.

    ``str()`` of the error is the leak trace.
    """

    def __init__(self, report: CycleReport) -> None:
        super().__init__(report)
        self.report = report
        """The leaks that were found."""

    def __reduce__(self) -> tuple[Any, ...]:
        """For pools of processes: the report travels as JSON."""
        rest = {name: value for name, value in vars(self).items() if name != "report"}
        return _from_json, (type(self), self.report.to_json()), rest

    def __str__(self) -> str:
        return f"tensors were kept alive by reference cycles\n\n{self.report}"


def _from_json(kind: type[TensorCycleError], json: str) -> TensorCycleError:
    report = CycleReport.from_json(json)
    error = kind.__new__(kind, report)
    error.report = report
    return error


class Recorder:
    """Records every leak from its creation until :meth:`stop`.

    Earlier garbage is collected first, so it is not counted.
    """

    def __init__(self, devices: Sequence[str], ignore: Sequence[str]) -> None:
        self._devices = list(devices)
        self._ignore = list(ignore)
        self._seen: list[CycleReport] = []
        self._answered: set[float] = set()
        if not OFF:
            clean_up()
        self._watch = Watch(
            self._devices,
            self._seen.append,
            once_per_leak=False,
            ignore=self._ignore,
            keep_all=True,
        )

    def looks_for(self, devices: Sequence[str], ignore: Sequence[str]) -> bool:
        """Whether it records these leaks."""
        return self._devices == list(devices) and self._ignore == list(ignore)

    def take(self) -> CycleReport:
        """Collect now and return what leaked since the start, or since the previous call."""
        found = _native.find(self._devices, self._ignore)
        self._watch.flush(STOP_SECONDS)
        # The watch reports the collection made by `find` too, now or a little later.
        self._answered.add(found.time)
        seen = self._seen.copy()
        del self._seen[: len(seen)]
        others = [report for report in seen if report.time not in self._answered]
        return _native.merge([found, *others])

    def discard(self) -> None:
        """Free all garbage, and forget what leaked until now."""
        collect()
        self._watch.flush(STOP_SECONDS)
        self._seen.clear()

    def stop(self) -> None:
        """Stop recording."""
        self._watch.stop()


def clean_up() -> None:
    for _ in range(CLEAN_UP_ROUNDS):
        if not collect():
            return


class ForbiddenCycles:
    """The context manager and decorator that :func:`forbid_tensor_cycles` returns."""

    def __init__(self, devices: list[str], ignore: list[str], min_bytes: int) -> None:
        self._devices = devices
        self._ignore = ignore
        self._min_bytes = min_bytes
        # A stack, because the same object may be entered again inside its own block.
        self._recorders: list[Recorder] = []

    def __enter__(self) -> ForbiddenCycles:
        self._recorders.append(Recorder(self._devices, self._ignore))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        __tracebackhide__ = True
        if not self._recorders:
            raise RuntimeError("this block was not entered")
        recorder = self._recorders.pop()
        try:
            # An exception raised by the block takes precedence.
            report = at_least(self._min_bytes, recorder.take()) if kind is None else None
        finally:
            recorder.stop()
        if report is not None and report.leaks:
            raise TensorCycleError(report)
        if not OFF:
            say_unseen()

    async def __aenter__(self) -> ForbiddenCycles:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        __tracebackhide__ = True
        self.__exit__(kind, error, traceback)

    def __call__(self, function: _Function) -> _Function:
        """Decorate a function: each call is checked as a block of its own."""
        # Imported here because only decorators need it.
        import inspect

        if isinstance(function, (staticmethod, classmethod)):
            return type(function)(self(function.__func__))
        if isinstance(function, type):
            raise TypeError(
                f"{function.__qualname__} is a class, of which only the constructor would be "
                "checked: decorate its methods instead"
            )
        if not callable(function):
            below = (
                ": put the decorator below it, on the function" if _is_property(function) else ""
            )
            raise TypeError(f"{type(function).__name__} is not a function{below}")
        called = _called(function)
        if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
            raise TypeError(
                f"{getattr(called, '__qualname__', called)} is a generator function, whose body "
                "runs after the call returns: use `with forbid_tensor_cycles():` around the loop "
                "instead"
            )

        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called):

            @functools.wraps(function)
            async def checked(*args: Any, **kwargs: Any) -> Any:
                __tracebackhide__ = True
                with self._another():
                    return await function(*args, **kwargs)

        else:

            @functools.wraps(function)
            def checked(*args: Any, **kwargs: Any) -> Any:
                __tracebackhide__ = True
                with self._another():
                    result = function(*args, **kwargs)
                return self._awaited(result) if isinstance(result, CoroutineType) else result

        return checked  # type: ignore[return-value]

    def _awaited(self, coroutine: CoroutineType[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        """A coroutine that checks what another does, in its name."""

        async def checked() -> Any:
            __tracebackhide__ = True
            with self._another():
                return await coroutine

        checked.__name__, checked.__qualname__ = coroutine.__name__, coroutine.__qualname__
        return checked()

    def _another(self) -> ForbiddenCycles:
        """A separate object for each call, because calls may run concurrently."""
        return ForbiddenCycles(self._devices, self._ignore, self._min_bytes)


def _is_property(given: object) -> bool:
    return isinstance(given, (property, functools.cached_property))


def _called(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that runs where an object is called, if it is written in Python."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, (FunctionType, MethodType, type)):
        return function
    own = type(function).__call__
    return own if isinstance(own, FunctionType) else function


@overload
def forbid_tensor_cycles(
    function: None = None,
    /,
    *,
    devices: Devices | None = None,
    ignore: Sequence[str] = (),
    min_bytes: int = 0,
) -> ForbiddenCycles: ...
@overload
def forbid_tensor_cycles(function: _Function, /) -> _Function: ...
def forbid_tensor_cycles(
    function: _Function | None = None,
    /,
    *,
    devices: Devices | None = None,
    ignore: Sequence[str] = (),
    min_bytes: int = 0,
) -> ForbiddenCycles | _Function:
    """Raise :class:`TensorCycleError` if a block or function leaks a tensor through a cycle.

    Use it with ``with`` or ``async with``, or as a decorator of functions and coroutine functions,
    with or without parentheses.
    A coroutine that a function returns is checked when it is awaited.
    Blocks may be nested. Garbage is collected before the block and at its end. Garbage from before
    the block does not count; leaks of other threads and tasks during the block do. If the block
    raises an exception, it propagates unchanged and nothing is checked. Garbage that
    ``gc.freeze()`` excluded from collections may be older than the block, so it does not count
    either: :func:`assert_no_tensor_cycles` finds it.

    Args:
        function: The function, where this is a decorator without parentheses.
        devices: Which memory to check. By default accelerators, or all memory if there are none,
            so the check also works on machines without a GPU; see :func:`warn_tensor_cycles`.
        ignore: Leaks that are allowed; see :func:`warn_tensor_cycles`.
        min_bytes: Allow leaks that held less.

    Raises:
        ValueError: If ``devices`` names no device, ``ignore`` is not a list of names,
            ``min_bytes`` is not a number of bytes, or a setting is invalid.
    """
    way_out = "Pass forbid_tensor_cycles(devices='any')"
    checked = resolve(devices, ignore, way_out)
    forbidden = ForbiddenCycles(*checked, check_min_bytes(min_bytes))
    return forbidden if function is None else forbidden(function)
