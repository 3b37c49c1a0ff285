"""A generator or coroutine that runs: its frame keeps what its variables keep, until they go."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import cyclescope


class Thing:
    """Can be referred to weakly."""


HOLDERS: dict[str, Callable[[Thing], object]] = {
    "tuple": lambda thing: (thing, 1),
    "partial": lambda thing: functools.partial(print, thing),
    "closure": lambda thing: lambda: thing,
    "list": lambda thing: [thing],
}


def held(kind: str) -> tuple[object, weakref.ref[Thing]]:
    thing = Thing()
    return HOLDERS[kind](thing), weakref.ref(thing)


def ask(seen: weakref.ref[Thing]) -> cyclescope.Retention:
    return cyclescope.why_alive(seen())


def judge(answer: cyclescope.Retention, function: str) -> None:
    [keeper] = answer.keepers
    assert keeper.words.startswith(f"local `holder` in `{function}`"), answer
    assert answer.is_enough, answer


def steps(kind: str, ask: Callable[[Any], cyclescope.Retention]) -> Iterator[None]:
    holder, seen = held(kind)
    judge(ask(seen), "steps")
    del holder
    assert seen() is None
    yield


@pytest.fixture(params=HOLDERS)
def kind(request: pytest.FixtureRequest) -> Iterator[str]:
    gc.collect()
    gc.disable()
    yield request.param
    gc.enable()


def test_a_generator_that_asks(kind: str) -> None:
    generator = steps(kind, lambda seen: cyclescope.why_alive(seen()))
    next(generator)


def test_a_function_that_a_generator_calls(kind: str) -> None:
    generator = steps(kind, ask)
    next(generator)


def test_a_generator_that_another_runs(kind: str) -> None:
    def around() -> Iterator[None]:
        yield from steps(kind, ask)

    assert len(list(around())) == 1


def test_many_generators_that_run_each_other(kind: str) -> None:
    def around(depth: int) -> Iterator[None]:
        yield from around(depth - 1) if depth else steps(kind, ask)

    assert len(list(around(50))) == 1


def test_a_context_manager(kind: str) -> None:
    with contextlib.contextmanager(steps)(kind, ask):
        pass


def test_a_coroutine(kind: str) -> None:
    async def train() -> None:
        holder, seen = held(kind)
        judge(ask(seen), "train")
        await asyncio.sleep(0)
        judge(ask(seen), "train")
        del holder
        assert seen() is None

    async def around() -> None:
        await asyncio.create_task(train())

    asyncio.run(around())


def test_an_asynchronous_generator(kind: str) -> None:
    async def batches() -> AsyncIterator[int]:
        holder, seen = held(kind)
        judge(ask(seen), "batches")
        yield 1
        judge(ask(seen), "batches")
        del holder
        assert seen() is None

    async def around() -> None:
        async for _ in batches():
            pass

    asyncio.run(around())


def test_a_generator_that_is_suspended_keeps_its_variables(kind: str) -> None:
    def paused() -> Iterator[weakref.ref[Thing]]:
        holder, seen = held(kind)
        yield seen
        del holder
        yield seen

    generator = paused()
    seen = next(generator)
    [keeper] = ask(seen).keepers
    assert "local `generator`" in keeper.words, keeper
    assert "holder" in keeper.words or kind != "list", keeper
    next(generator)
    assert seen() is None
