"""For each pattern a program that leaks so, and the same with the advice followed.

Each takes a function that makes a tensor, and whether the advice is to be followed.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import sys
import threading
import traceback
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from .marks import CLOSE_DROPS_VARIABLES

Make = Callable[[], Any]
Program = Callable[[Make, bool], object]

PROGRAMS: dict[str, list[Program]] = {}


def of(pattern: str) -> Callable[[Program], Program]:
    """Registers a program of a pattern."""

    def register(program: Program) -> Program:
        PROGRAMS.setdefault(pattern, []).append(program)
        return program

    return register


class Thing:
    """An object with the attributes that it is given."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def work(self, *args: Any) -> Any:
        return args

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        vars(self)[name] = value


@of("closure-captures-owner")
def closure(make: Make, followed: bool) -> None:
    """Capture the values that the function needs, not ``thing``."""
    thing = Thing(tensor=make(), size=3)
    size = thing.size
    thing.callback = (lambda: size) if followed else (lambda: thing.size)


@of("closure-captures-owner")
def weak_closure(make: Make, followed: bool) -> None:
    """Or capture ``weakref.ref(thing)``, if something else keeps it alive."""
    thing = Thing(tensor=make(), size=3)
    weak = weakref.ref(thing)
    thing.callback = (lambda: weak().size) if followed else (lambda: thing.size)  # type: ignore[union-attr]
    assert thing.callback() == 3


@of("closure-captures-owner")
def default(make: Make, followed: bool) -> None:
    """Pass the values that the function needs, not ``thing``."""
    thing = Thing(tensor=make(), size=3)

    def leaking(it: Any = thing) -> Any:
        return it.size

    def mended(size: Any = thing.size) -> Any:
        return size

    thing.callback = mended if followed else leaking
    if followed:
        del leaking


@of("bound-method-on-owner")
def bound_method(make: Make, followed: bool) -> None:
    """Look the method up when it is called, by its name."""
    thing = Thing(tensor=make())
    thing.callback = "work" if followed else thing.work
    if followed:
        getattr(thing, thing.callback)()


@of("bound-method-on-owner")
def bound_method_in_a_list(make: Make, followed: bool) -> None:
    """Remove the method from the list when it is no longer needed."""
    thing = Thing(tensor=make())
    thing.callbacks = [thing.work]
    if followed:
        thing.callbacks.remove(thing.work)


@of("bound-method-on-owner")
def weak_method(make: Make, followed: bool) -> None:
    """Or store a ``weakref.WeakMethod``."""
    thing = Thing(tensor=make())
    thing.callbacks = [weakref.WeakMethod(thing.work) if followed else thing.work]


@of("wrapped-method-on-owner")
def wrapped_method(make: Make, followed: bool) -> None:
    """Wrap the function in the class, not the method of each object."""
    thing = Wrapped()
    thing.tensor = make()
    if not followed:
        vars(thing)["step"] = wrapped(thing.work)


def wrapped(call: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any) -> Any:
        return call(*args)

    return wrapper


class Wrapped(Thing):
    @wrapped
    def step(self) -> None:
        pass


@of("partial-keeps-owner")
def partial_of_method(make: Make, followed: bool) -> None:
    """Define a method that calls it with the arguments."""
    thing = Partial(tensor=make())
    if not followed:
        vars(thing)["draw"] = functools.partial(thing.work, 1)


class Partial(Thing):
    def draw(self, *args: Any) -> None:
        self.work(1, *args)


@of("partial-keeps-owner")
def partial_with_owner(make: Make, followed: bool) -> None:
    """Pass the values that the function needs instead."""
    thing = Thing(tensor=make(), size=1)
    thing.draw = functools.partial(print, thing.size if followed else thing)


@of("cache-on-instance")
def cache(make: Make, followed: bool) -> None:
    """Cache in a dict on the object."""
    thing = Thing(tensor=make())
    thing.cache = {1: thing.work(1)} if followed else functools.lru_cache(thing.work)


@of("iterator-on-owner")
def iterator(make: Make, followed: bool) -> None:
    """Make the iterator where it is used."""
    thing = Thing(tensor=make())
    made = map(thing.work, [1, 2])
    if not followed:
        thing.results = made
    next(made)


@of("mock-keeps-arguments")
def mocked(make: Make, followed: bool) -> None:
    """Reset the mock."""
    thing = mock.Mock()
    thing.work(make())
    if followed:
        thing.reset_mock()


@of("exit-stack-not-closed")
def exit_stack(make: Make, followed: bool) -> None:
    """Close the stack when it is no longer needed."""
    thing = Thing(tensor=make(), stack=contextlib.ExitStack())
    thing.stack.callback(thing.work)
    if followed:
        thing.stack.close()


@of("suspended-holds-itself")
def generator(make: Make, followed: bool) -> None:
    """Run it to its end, or ``close()`` it, where that drops its variables."""
    thing = Batches(tensor=make())
    thing.batches = thing.read()
    next(thing.batches)
    if followed:
        if CLOSE_DROPS_VARIABLES:
            thing.batches.close()
        else:
            list(thing.batches)


class Batches(Thing):
    def read(self) -> Iterator[int]:
        yield 1
        yield 2

    async def serve(self) -> None:
        await pause()

    async def tokens(self) -> Any:
        yield 1
        yield 2


@types.coroutine
def pause() -> Any:
    yield


@of("suspended-holds-itself")
def coroutine(make: Make, followed: bool) -> None:
    """Await it to its end, or close it."""
    thing = Batches(tensor=make())
    thing.job = thing.serve()
    thing.job.send(None)
    if followed:
        thing.job.close()


@of("suspended-holds-itself")
def async_generator(make: Make, followed: bool) -> None:
    """Finish it or ``await`` its ``aclose()``."""
    thing = Batches(tensor=make())
    thing.stream = thing.tokens()
    # A step that is not awaited is warned of, and from 3.13 on the warning keeps the generator.
    steps = [thing.stream.__anext__, thing.stream.aclose]
    for step in steps if followed else steps[:1]:
        with contextlib.suppress(StopIteration, StopAsyncIteration):
            step().send(None)


@of("property-captures-owner")
def captured_property(make: Make, followed: bool) -> None:
    """Use the object that the function is called with."""

    class Config:
        size: Any

    config = Config()
    config.tensor = make()  # type: ignore[attr-defined]
    Config.size = property((lambda it: it) if followed else (lambda _: config))


@of("weakref-callback")
def weakref_callback(make: Make, followed: bool) -> None:
    """Let the callback refer weakly to the object."""
    thing = Thing(tensor=make())
    weak = weakref.ref(thing)
    thing.watch = weakref.ref(ALIVE, (lambda _: weak()) if followed else (lambda _: thing))


ALIVE = Thing()


@of("thread-target")
def timer(make: Make, followed: bool) -> None:
    """Set it to None when it is no longer needed."""
    thing = Thing(tensor=make())
    thing.timer = threading.Timer(60, thing.work)
    thing.timer.cancel()
    if followed:
        thing.timer = None


@of("refers-to-itself")
def itself(make: Make, followed: bool) -> None:
    """Make it a property."""
    thing = Itself(tensor=make())
    if not followed:
        vars(thing)["me"] = thing


class Itself(Thing):
    @property
    def root(self) -> Itself:
        return self


@of("linked-both-ways")
def parent(make: Make, followed: bool) -> None:
    """Set ``child.parent`` to None when it is no longer needed."""
    thing = Thing(tensor=make())
    thing.child = child = Thing(parent=thing)
    if followed:
        child.parent = None


@of("linked-both-ways")
def weak_parent(make: Make, followed: bool) -> None:
    """Or make this reference weak, if something else keeps the parent alive."""
    thing = Thing(tensor=make())
    thing.child = child = Thing(parent=weakref.ref(thing) if followed else thing)
    assert not followed or child.parent() is thing


@of("linked-both-ways")
def container(make: Make, followed: bool) -> None:
    """Remove the items when they are no longer needed."""
    thing = Thing(tensor=make())
    thing.links = [Thing(known=thing)]
    if followed:
        thing.links.clear()


class Bunch(dict[str, Any]):
    def __init__(self, followed: bool) -> None:
        super().__init__()
        if not followed:
            self.__dict__ = self

    def __getattr__(self, name: str) -> Any:
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "__dict__":
            super().__setattr__(name, value)
        else:
            self[name] = value


@of("container-contains-itself")
def container_is_its_dict(make: Make, followed: bool) -> None:
    """Define ``__getattr__`` and ``__setattr__``."""
    bunch = Bunch(followed)
    bunch.tensor = make()


@of("container-contains-itself")
def container_in_itself(make: Make, followed: bool) -> None:
    """Store a copy."""
    state: dict[str, Any] = {"tensor": make()}
    state["state"] = dict(state) if followed else state


@of("recursive-inner-function")
def recursion(make: Make, followed: bool) -> None:
    """Delete ``halve`` at the end of the enclosing function."""
    tensor = make()

    def halve(n: int) -> Any:
        return halve(n // 2) if n else tensor

    halve(3)
    if followed:
        del halve


@of("recursive-inner-function")
def cached_recursion(make: Make, followed: bool) -> None:
    """Delete ``visit`` at the end of the enclosing function."""
    tensor = make()

    @functools.cache
    def visit(depth: int) -> Any:
        return visit(depth - 1) if depth else tensor is None

    visit(3)
    if followed:
        del visit


@of("mutually-recursive-functions")
def mutual_recursion(make: Make, followed: bool) -> None:
    """Delete ``odd`` at the end of the enclosing function."""
    tensor = make()

    def even(n: int) -> Any:
        return odd(n - 1) if n else tensor

    def odd(n: int) -> Any:
        return even(n - 1) if n else None

    even(3)
    if followed:
        del odd


@of("namespace-made-at-run-time")
def namespace(make: Make, followed: bool) -> None:
    """Empty the namespace when it is no longer needed."""
    names = {"tensor": make()}
    exec("def run(): pass", names)
    if followed:
        names.clear()


@of("class-made-at-run-time")
def run_time_class(make: Make, followed: bool) -> None:
    """Define the class once, at module level."""

    class Lookup:
        table = None if followed else make()

    if followed:
        Once(table=make())


class Once(Thing):
    pass


@of("exception-keeps-traceback")
def exception_in_local(make: Make, followed: bool) -> None:
    """Delete ``failure`` before the function ends."""
    tensor = make()
    try:
        raise ValueError(tensor is None)
    except ValueError as error:
        failure = error
    assert failure
    if followed:
        del failure


@of("exception-keeps-traceback")
def exception_in_abandoned_generator(make: Make, followed: bool) -> None:
    """Delete ``failure`` before the generator ends, which is when it is closed."""

    def rows() -> Iterator[int]:
        tensor = make()
        try:
            try:
                raise ValueError(tensor is None)
            except ValueError as error:
                failure = error
            yield 1
            assert failure
        finally:
            if followed:
                del failure

    next(rows())


@of("exception-keeps-traceback")
def exception_without_traceback(make: Make, followed: bool) -> None:
    """Or keep the exception without its traceback."""
    tensor = make()
    try:
        raise ValueError(tensor is None)
    except ValueError as error:
        failure = error.with_traceback(None) if followed else error
    assert failure


@of("exception-on-object")
def exception_on_object(make: Make, followed: bool) -> None:
    """Store the exception without its traceback."""
    thing = Thing(tensor=make())
    try:
        raise ValueError
    except ValueError as error:
        thing.error = error.with_traceback(None) if followed else error


@of("exception-on-object")
def text_of_exception(make: Make, followed: bool) -> None:
    """Or store the text of the exception."""
    thing = Thing(tensor=make())
    try:
        raise ValueError
    except ValueError as error:
        thing.error = str(error) if followed else error


@of("exception-chain")
def exception_chain(make: Make, followed: bool) -> None:
    """Clear the chain of the exception that is kept, and its traceback."""
    thing = Thing(tensor=make())
    try:
        try:
            raise ValueError
        except ValueError as error:
            raise KeyError from error
    except KeyError as error:
        # Its own traceback would be nearer than that of its cause.
        thing.error = error.with_traceback(None)
    if followed:
        thing.error.__cause__ = thing.error.__context__ = None


@of("exc-info-kept")
def exc_info_in_local(make: Make, followed: bool) -> None:
    """Delete ``info`` before the function ends."""
    tensor = make()
    try:
        raise ValueError(tensor is None)
    except ValueError:
        info = sys.exc_info()
    assert info
    if followed:
        del info


@of("exc-info-kept")
def exc_info_on_object(make: Make, followed: bool) -> None:
    """Keep the text of the exception instead."""
    thing = Thing(tensor=make())
    try:
        raise ValueError
    except ValueError:
        thing.error = traceback.format_exc() if followed else sys.exc_info()


@of("frame-in-local")
def frame(make: Make, followed: bool) -> None:
    """Delete ``here`` before the function ends."""
    tensor = make()
    here = sys._getframe()
    assert here
    assert tensor is not None
    if followed:
        del here


@of("future-keeps-exception")
def future(make: Make, followed: bool) -> None:
    """Delete ``result`` before the function ends."""
    tensor = make()
    result: concurrent.futures.Future[Any] = concurrent.futures.Future()
    try:
        raise ValueError(tensor is None)
    except ValueError as error:
        result.set_exception(error)
    if followed:
        del result


@of("future-keeps-exception")
def futures(make: Make, followed: bool) -> None:
    """Delete the loop's ``last`` and ``all_of_them`` before the function ends."""
    tensor = make()
    failed: concurrent.futures.Future[Any] = concurrent.futures.Future()
    try:
        raise ValueError(tensor is None)
    except ValueError as error:
        failed.set_exception(error)
    all_of_them = {failed: 0}
    del failed
    for last in all_of_them:
        assert last.done()
    if followed:
        del last, all_of_them


@of("future-keeps-exception")
def task(make: Make, followed: bool) -> None:
    """Delete ``job`` before the function ends."""

    async def fail() -> None:
        raise ValueError

    async def run() -> None:
        tensor = make()
        job = asyncio.ensure_future(fail())
        try:
            await job
        except ValueError:
            assert tensor is not None
        if followed:
            del job

    loop = asyncio.new_event_loop()
    loop.run_until_complete(run())
    loop.close()
