"""Types of the standard library that run something: tasks, caches, iterators, contexts, threads."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import gc
import itertools
import operator
import threading
from collections.abc import Callable
from typing import Any

import numpy

from extension_programs.holders import Holder, Loud, program


@program()
def asyncio_tasks() -> None:
    async def work(holder: Holder, future: Any) -> None:
        local = Holder(f"local of {holder.name}", holder)
        try:
            await future
        except asyncio.CancelledError:
            print("cancelled", local.name)
            raise
        finally:
            print("finally", holder.name)

    async def stream() -> Any:
        holder = Loud("asynchronous generator")
        try:
            yield holder
        finally:
            print("asynchronous finally", holder.array.size)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for kind in (Holder, Loud):
            pending = kind("pending")
            future = loop.create_future()
            pending.things = [future, asyncio.ensure_future(work(pending, future))]
            future.add_done_callback(pending.none)
            failed = kind("failed")
            failed.things = loop.create_future()
            failed.things.set_exception(ValueError(failed))
            done = kind("done")
            done.things = loop.create_future()
            done.things.set_result(done)
            cancelled = kind("cancelled")
            cancelled.things = loop.create_task(work(cancelled, loop.create_future()))
            await asyncio.sleep(0)
            cancelled.things.cancel()
            await asyncio.sleep(0)
        generator = stream()
        holder = await generator.__anext__()
        holder.things = generator
        queue: asyncio.Queue[Any] = asyncio.Queue()
        Holder("queue", queue).more = asyncio.gather(queue.get(), return_exceptions=True)
        del pending, future, failed, done, cancelled, generator, holder, queue
        print("in the loop", gc.collect(0), gc.collect(1))
        await asyncio.sleep(0)
        print("in the loop", gc.collect())
        await asyncio.sleep(0)

    asyncio.run(main())


@program()
def caches() -> None:
    class Cached(Holder):
        @functools.lru_cache(maxsize=3)  # noqa: B019
        def value(self, number: int) -> Any:
            return self, numpy.zeros(number)

        @functools.cached_property
        def prepared(self) -> Any:
            return [self, self.array]

    for number in range(4):
        cached = Cached(f"cached {number}")
        cached.value(number)
        cached.prepared.append(number)
    Cached.value.of = Cached  # type: ignore[attr-defined]
    for size in (None, 0, 2):
        holder = Loud(f"cache of {size}")
        cache = functools.lru_cache(maxsize=size)(holder.method)
        holder.things = cache
        for number in range(3):
            cache(number, holder)
        print(cache.cache_info())
    reduced = Holder("partial")
    reduced.things = functools.partial(reduced.method, reduced, reduced)
    key = functools.cmp_to_key(lambda a, b: 0)
    reduced.more = key(reduced)
    single = functools.singledispatch(reduced.method)
    reduced.things.single = single


@program()
def iterators() -> None:
    made: list[Callable[[Any], Any]] = [
        lambda it: itertools.chain(it, it),
        lambda it: itertools.chain.from_iterable([it]),
        lambda it: itertools.cycle(it),
        lambda it: itertools.repeat(it),
        lambda it: itertools.islice(it, 5),
        lambda it: itertools.tee(it)[1],
        lambda it: itertools.zip_longest(it, it, fillvalue=it),
        lambda it: itertools.accumulate(it, lambda a, b: b),
        lambda it: itertools.product([it], [it]),
        lambda it: itertools.permutations([it, it]),
        lambda it: itertools.combinations([it, it], 2),
        lambda it: itertools.combinations_with_replacement([it], 2),
        lambda it: itertools.groupby(it),
        lambda it: itertools.starmap(lambda *a: a, it),
        lambda it: itertools.takewhile(lambda _: True, it),
        lambda it: itertools.dropwhile(lambda _: False, it),
        lambda it: itertools.filterfalse(None, it),
        lambda it: itertools.compress(it, itertools.repeat(1)),
        lambda it: itertools.count(numpy.float64(1)),
        lambda it: itertools.pairwise(it),
        lambda it: map(operator.not_, it),
        lambda it: zip(it, it),  # noqa: B905
        lambda it: enumerate(it),
        lambda it: filter(None, it),
        lambda it: reversed([it]),
        lambda it: iter(lambda: it, None),
    ]
    for number, make in enumerate(made):
        holder = (Holder, Loud)[number % 2](f"iterator {number}")
        members: list[Any] = [holder, (holder, 1), holder.array]
        iterator = make(iter(members))
        with contextlib.suppress(StopIteration, TypeError, ValueError):
            holder.more = None
            members.append(next(iterator))
        holder.things = iterator
        members.append(iterator)
    one, two = itertools.tee(iter([Holder("teed")] * 100))
    next(one)
    Holder("tee", one, two)


VARIABLE: contextvars.ContextVar[Any] = contextvars.ContextVar("variable", default=None)


@program()
def contexts() -> None:
    first = Holder("context")
    first.things = contextvars.copy_context()
    first.things.run(VARIABLE.set, first)
    second = Loud("token")
    token = VARIABLE.set(second)
    second.things = token
    inner = contextvars.copy_context()
    VARIABLE.set(None)
    Holder("copy", inner, inner.items())
    third = Holder("variable")
    third.things = contextvars.ContextVar("own", default=third)
    # How the context of two variables looks inside depends on their addresses.
    fourth = Holder("in its own")
    fourth.things = contextvars.Context()
    fourth.things.run(VARIABLE.set, fourth.things)


@program()
def thread_locals() -> None:
    class Local(threading.local):
        def __init__(self) -> None:
            self.holder = Holder("subclass", self)

    plain = threading.local()
    plain.holder = Loud("local", plain)
    each = [plain, Local()]

    def work() -> None:
        each[0].other = Holder("of a thread", each[0])
        each[1].holder.more = None
        entered.set()
        go.wait()

    entered, go = threading.Event(), threading.Event()
    thread = threading.Thread(target=work)
    thread.start()
    entered.wait()
    del plain
    each.clear()
    print("while the thread runs", gc.collect())
    go.set()
    thread.join()
