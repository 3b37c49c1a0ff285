"""An exit stack is to be closed: the advice says so, and closing it frees the memory."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import pytest

from support.owners import found

pytestmark = pytest.mark.usefixtures("collector_paused")


class Resource:
    """A context manager that knows its owner."""

    def __init__(self, owner: object) -> None:
        self.owner = owner

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *error: object) -> None: ...


class Base:
    def __init__(self) -> None:
        self.array = numpy.zeros(5000)

    def release(self, *error: object) -> None: ...


class WithCallback(Base):
    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        self.stack.callback(self.release)

    def close(self) -> None:
        self.stack.close()


class WithLambda(WithCallback):
    def __init__(self) -> None:
        Base.__init__(self)
        self.stack = contextlib.ExitStack()
        self.stack.push(lambda *error: self.release())


class WithManager(WithCallback):
    def __init__(self) -> None:
        Base.__init__(self)
        self.stack = contextlib.ExitStack()
        self.stack.enter_context(Resource(self))


class WithArgument(WithCallback):
    def __init__(self) -> None:
        Base.__init__(self)
        self.stack = contextlib.ExitStack()
        self.stack.callback(print, self)


class ByName(Base):
    def __init__(self) -> None:
        super().__init__()
        self.stacks = {"main": contextlib.ExitStack()}
        self.stacks["main"].callback(self.release)

    def close(self) -> None:
        self.stacks["main"].close()


class Derived(contextlib.ExitStack):
    def __init__(self) -> None:
        super().__init__()
        self.array = numpy.zeros(5000)
        self.callback(self.release)

    def release(self) -> None: ...


class Asynchronous(Base):
    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.AsyncExitStack()
        asyncio.run(self.stack.enter_async_context(Resource(self)))

    def close(self) -> None:
        asyncio.run(self.stack.aclose())


SAID: dict[Callable[[], Any], str] = {
    WithCallback: "The exit stack `WithCallback.stack` keeps the bound method `release`",
    WithLambda: "The exit stack `WithLambda.stack` keeps a lambda",
    WithManager: "The exit stack `WithManager.stack` keeps the bound method `__exit__`",
    WithArgument: "The exit stack `WithArgument.stack` keeps the WithArgument itself until",
    ByName: "An exit stack in `ByName.stacks` keeps the bound method `release`",
    Derived: "The Derived, an exit stack, keeps the bound method `release`",
    Asynchronous: "The exit stack `Asynchronous.stack` keeps the bound method `__aexit__`",
}


@pytest.mark.parametrize("make", SAID)
def test_an_exit_stack_is_to_be_closed(make: Callable[[], Any]) -> None:
    (leak,) = found(make).leaks
    assert leak.pattern == "exit-stack-not-closed"
    assert SAID[make] in leak.advice
    how = "`aclose()` or an `async with`" if make is Asynchronous else "`close()` or a `with`"
    assert how in leak.advice
    assert "_exit_callbacks" not in leak.advice


@pytest.mark.parametrize("make", SAID)
def test_closing_it_frees_the_memory(make: Callable[[], Any]) -> None:
    gc.disable()
    owner = make()
    array = weakref.ref(owner.array)
    owner.close()
    del owner
    assert array() is None


class OwnCallbacks(Base):
    """Its attribute has the name of the standard library's, and no exit stack is meant."""

    def __init__(self) -> None:
        super().__init__()
        self._exit_callbacks: list[Any] = [self.release]


def test_a_list_of_the_same_name_is_no_exit_stack() -> None:
    (leak,) = found(OwnCallbacks).leaks
    assert leak.pattern != "exit-stack-not-closed"
