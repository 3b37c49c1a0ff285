"""Blocks of code in which no cycle may leak a tensor."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, TypeVar

from cyclescope import _native
from cyclescope._native import CycleReport
from cyclescope._off import OFF
from cyclescope._selection import Devices
from cyclescope._watch import Watch, resolve

_Function = TypeVar("_Function", bound=Callable[..., Any])

CLEAN_UP_ROUNDS = 3
"""So often at most garbage is collected before a block: finalizers may leave new garbage."""


class TensorCycleError(AssertionError):
    """A reference cycle held a tensor where that is forbidden; its text is the leak trace."""

    def __init__(self, report: CycleReport) -> None:
        super().__init__(report)
        self.report = report
        """What was found."""

    def __str__(self) -> str:
        return f"tensors were kept alive by reference cycles\n\n{self.report}"


class Recorder:
    """Sees every leak from the moment when it is made until it is stopped.

    What was garbage before is collected first, so that it is not among them. Collections in between
    are looked at beforehand, so that no finalizer hides a leak.
    """

    def __init__(self, devices: Sequence[str], ignore: Sequence[str]) -> None:
        self._devices = list(devices)
        self._ignore = list(ignore)
        self._seen: list[CycleReport] = []
        self._answered: set[float] = set()
        if not OFF:
            _clean_up()
        self._watch = Watch(
            self._devices,
            self._seen.append,
            once_per_leak=False,
            ignore=self._ignore,
            thorough=True,
        )

    def take(self) -> CycleReport:
        """Collect now; what leaked since the start, or since the last call of this."""
        found = _native.find(self._devices, self._ignore)
        self._watch.flush()
        # The collection of `find` is told to the watch too, now or a little later.
        self._answered.add(found.time)
        seen = self._seen.copy()
        del self._seen[: len(seen)]
        others = [report for report in seen if report.time not in self._answered]
        return _native.merge([found, *others])

    def stop(self) -> None:
        """See no more."""
        self._watch.stop()


def _clean_up() -> None:
    for _ in range(CLEAN_UP_ROUNDS):
        if not gc.collect():
            return


class ForbiddenCycles:
    """Made by :func:`forbid_tensor_cycles`; a context manager and a decorator."""

    def __init__(self, devices: list[str], ignore: list[str]) -> None:
        self._devices = devices
        self._ignore = ignore
        # A stack, as the same object may be entered again inside of itself.
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
        recorder = self._recorders.pop()
        try:
            # An error of the block's own is the one to be told of.
            report = recorder.take() if kind is None else None
        finally:
            recorder.stop()
        if report is not None and report.leaks:
            raise TensorCycleError(report)

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
        """The function, each call of it a block of its own."""
        # Only who decorates pays for the import.
        import inspect

        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"{function.__qualname__} is a generator, whose code runs after the call: use "
                "`with forbid_tensor_cycles():` around the loop over it"
            )

        if inspect.iscoroutinefunction(function):

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
                    return function(*args, **kwargs)

        return checked  # type: ignore[return-value]

    def _another(self) -> ForbiddenCycles:
        """Calls may run at the same time, in threads and tasks."""
        return ForbiddenCycles(self._devices, self._ignore)


def forbid_tensor_cycles(
    *, devices: Devices | None = None, ignore: Sequence[str] = ()
) -> ForbiddenCycles:
    """Raise :class:`TensorCycleError` if a cycle keeps a tensor alive in a block or a function.

    Works as ``with``, as ``async with``, and as a decorator of functions and coroutine functions;
    blocks may be nested. Before the block, and at its end, garbage is collected; what was garbage
    before is not blamed on the block, but what other threads and tasks leak meanwhile is. An
    exception of the block passes unchanged, and nothing is checked then.

    Args:
        devices: Which memory to look at; by default ``"any"``, host memory too, so that the check
            holds on machines without a GPU.
        ignore: Leaks that are allowed; see :func:`warn_tensor_cycles`.

    Raises:
        ValueError: If ``devices`` names no device, ``ignore`` is not a list of names, or a setting
            is wrong.
    """
    way_out = "Pass forbid_tensor_cycles(devices='any')"
    return ForbiddenCycles(*resolve(devices, ignore, "any", way_out))
