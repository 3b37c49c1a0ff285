"""Objects of other C extensions in garbage: programs that must not notice a watch.

Each is run bare and under a watch, and all that it printed is compared; ``conditions.py`` does that
while something else looks at them too.

usage: PYTHONPATH=python python tests/harmless/extensions.py [NAME ...] [--built FOLDER]
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import contextvars
import csv
import ctypes
import decimal
import functools
import gc
import importlib.util
import io
import itertools
import mmap
import operator
import pickle
import re
import resource
import sqlite3
import struct
import sys
import tempfile
import threading
import types
import weakref
import xml.etree.ElementTree as ElementTree
import zoneinfo
from collections.abc import Callable, Iterator
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import numpy

PROGRAMS: dict[str, Callable[[], object]] = {}
NEEDS: dict[str, tuple[str, ...]] = {}
ROUNDS = (2, 0, 1, 0, 2)
"""The generations that are collected, each after a run of the program."""
SLOW = {"loader_fork", "loader_spawn", "loader_persistent"}
"""Programs that start processes: one round is enough."""


def program(*needs: str) -> Callable[[Callable[[], object]], Callable[[], object]]:
    def put(function: Callable[[], object]) -> Callable[[], object]:
        PROGRAMS[function.__name__] = function
        NEEDS[function.__name__] = needs
        return function

    return put


def missing(name: str) -> list[str]:
    """What a program needs and is not installed."""
    return [need for need in NEEDS[name] if importlib.util.find_spec(need) is None]


class Told:
    """No container, so not the collector's own: says when it dies."""

    __slots__ = ("__weakref__", "name")

    def __init__(self, name: str) -> None:
        self.name = name

    def __del__(self) -> None:
        print("dies", self.name)


class Holder:
    """Refers to itself, an array and other things, so that it dies with a collection only."""

    def __init__(self, name: str, *things: Any) -> None:
        self.name = name
        self.things: Any = things
        self.array: Any = numpy.zeros(16)
        self.told = Told(name)
        self.me: Any = self
        self.more: Any = None
        weakref.finalize(self, print, "gone", name).atexit = False

    def method(self, *args: Any) -> Any:
        return self, args

    def none(self, *args: Any) -> None:
        return None


class Loud(Holder):
    """Uses what it holds when it is finalized."""

    def __del__(self) -> None:
        print("del", self.name, type(self.things).__name__, self.array.size)
        if self.more is not None:
            self.more(self)


# Packages.


@program("greenlet")
def greenlets() -> None:
    import greenlet  # type: ignore[import-untyped, unused-ignore]

    def body(holder: Holder) -> None:
        local = Holder(f"local of {holder.name}", holder)
        try:
            local.more = greenlet.getcurrent().parent.switch()
        except greenlet.GreenletExit:
            print("killed", holder.name, local.array.size)
            raise
        finally:
            print("finally", holder.name)

    for kind in (Holder, Loud):
        holder = kind("suspended")
        holder.more = None
        switched = greenlet.greenlet(body)
        holder.things = [switched]
        switched.switch(holder)
        never = kind("never started")
        never.things = greenlet.greenlet(body)
        never.things.holder = never
        ended = kind("ended")
        ended.things = greenlet.greenlet(lambda: None)
        ended.things.switch()
        ended.things.holder = ended
        nested = kind("nested")
        outer = greenlet.greenlet(body)
        nested.things = greenlet.greenlet(body, outer)
        outer.switch(nested)
        nested.things.other = nested


@program("lxml")
def lxml_elements() -> None:
    from lxml import etree  # type: ignore[import-untyped, unused-ignore]

    class Custom(etree.ElementBase):  # type: ignore[misc]
        pass

    lookup = etree.ElementDefaultClassLookup(element=Custom)
    parser = etree.XMLParser()
    parser.set_element_class_lookup(lookup)
    tree = etree.fromstring("<a><b x='1'>t<c/></b><b/></a>", parser)
    first = Holder("elements", tree, tree[0], tree[0].attrib, tree[0].iter(), tree.getroottree())
    first.more = etree.XPath("count(//b)")
    print(first.more(tree))

    class Target:
        def __init__(self) -> None:
            self.holder = Loud("target", self)

        def start(self, tag: str, attributes: Any) -> None:
            self.holder.more = None

        def close(self) -> str:
            return "closed"

    target = Target()
    own = etree.XMLParser(target=target)
    target.holder.things = [own]
    print(etree.fromstring("<a><b/></a>", own))
    second = Loud("extension")
    second.things = etree.XPathEvaluator(
        tree, extensions={(None, "of_mine"): functools.partial(second.none)}
    )
    third = Holder("resolver")

    class Resolver(etree.Resolver):  # type: ignore[misc]
        def __init__(self) -> None:
            self.holder = third

    resolving = etree.XMLParser()
    resolving.resolvers.add(Resolver())
    third.things = [resolving, resolving.resolvers]
    fourth = Holder("events")
    events = etree.iterparse(io.BytesIO(b"<a><b/><c/></a>"), events=("start", "end"))
    next(events)
    fourth.things = events
    Holder("transform").things = etree.XSLT(
        etree.XML(
            '<x:stylesheet version="1.0" xmlns:x="http://www.w3.org/1999/XSL/Transform">'
            '<x:template match="/"><y/></x:template></x:stylesheet>'
        )
    )


@program("pyarrow")
def pyarrow_tables() -> None:
    import pyarrow as arrow  # type: ignore[import-not-found, unused-ignore]

    array = numpy.arange(32.0)
    whole = Holder("buffer", arrow.py_buffer(array), array)
    whole.more = arrow.array(array)
    table = arrow.table({"a": whole.more, "b": list(range(32))})
    second = Loud("table", table, table["a"], table.schema, table.slice(3).to_batches())
    second.array = table["a"].chunk(0).to_numpy()
    third = Holder("scalars", table["b"][3], arrow.scalar({"x": [1, 2]}))
    third.more = memoryview(arrow.py_buffer(bytearray(64)))

    def batches(holder: Holder) -> Iterator[Any]:
        try:
            yield from table.to_batches()
        finally:
            print("reader ends", holder.name)

    fourth = Holder("reader")
    fourth.things = arrow.RecordBatchReader.from_batches(table.schema, batches(fourth))
    fourth.things.read_next_batch()

    class Stream(io.BytesIO):
        holder: Any = None

    stream = Stream()
    stream.holder = Holder("file", stream)
    stream.holder.more = arrow.PythonFile(stream, "w")
    stream.holder.more.write(b"some")


@program("harmless_cython")
def cython_classes() -> None:
    import harmless_cython as made  # type: ignore[import-not-found]

    class Awaited:
        def __await__(self) -> Iterator[None]:
            yield

    class Derived(made.Plain):  # type: ignore[misc]
        def __del__(self) -> None:
            print("derived del", self.one.array.size)

    for kind in (made.Plain, made.Open, made.KeptWhole, made.Reused, made.Inherits, Derived):
        it = kind()
        it.one = Holder(kind.__name__, it)
        if kind is made.Open:
            it.more = it
    for number, kind in enumerate((Holder, Loud)):
        final = made.Final()
        final.name = f"final {number}"
        final.one = kind("final", final)
        dealloc = made.Deallocated(number)
        dealloc.one = kind("deallocated", dealloc)
        running = kind("generator")
        running.things = made.generate(running)
        next(running.things)
        waits = kind("coroutine")
        waits.things = (made.wait_for(Awaited()), waits)
        waits.things[0].send(None)
        closed = kind("closure")
        closed.things = made.closure(closed)


@program("harmless_pybind")
def pybind11_classes() -> None:
    import harmless_pybind as made  # type: ignore[import-not-found]

    class Derived(made.Open):  # type: ignore[misc]
        def __del__(self) -> None:
            print("derived del", self.number)

    for kind in (made.Open, Derived):
        it = kind(1)
        it.holder = Holder(kind.__name__, it)
        it.me = it
        it.array = numpy.zeros(3)
    hides = made.Hides()
    hides.one = numpy.zeros(5)
    hides.holder = Loud("hides", hides)
    shows = made.Shows()
    shows.one = Holder("shows", shows)
    calls = made.Calls()
    calls.function = int
    calls.holder = Holder("calls", calls)
    calls.function = functools.partial(operator.add, 3)
    owner = made.Open(2)
    owner.holder = made.keeps(Holder("owner", owner), made.Open(3))


@program("harmless_c")
def classes_in_c() -> None:
    """One makes an object when the collector traverses it, one's finalizer leaves an exception."""
    import harmless_c as made  # type: ignore[import-not-found]

    lazy = [made.Lazy(), made.Lazy()]
    for it in lazy:
        it.be_lazy()
    Loud("beside", lazy)
    complains = made.Complains()
    complains.hold([complains, Holder("complains", complains)])


@program("cffi", "_cffi_backend")
def cffi_handles() -> None:
    import cffi  # type: ignore[import-untyped, unused-ignore]

    ffi = cffi.FFI()
    first = Holder("handle")
    first.things = ffi.new_handle(first)
    print(ffi.from_handle(first.things) is first)
    second = Loud("callback")
    second.things = ffi.callback("int(int)", functools.partial(lambda me, x: x + 1, second))
    print(second.things(3))
    third = Holder("destructor")

    def destroy(_: Any, name: str = "destructor") -> None:
        print("destroyed", name)

    third.things = ffi.gc(ffi.new("int[4]"), destroy)
    fourth = Holder("buffer")
    fourth.things = (ffi.from_buffer(fourth.array), ffi.buffer(ffi.new("char[8]")))
    fifth = Holder("struct")
    ffi.cdef("struct pair { int a; void *b; };")
    pair = ffi.new("struct pair *")
    handle = ffi.new_handle(fifth)
    pair.b = handle
    fifth.things = [pair, pair[0], handle, ffi.addressof(pair, "a")]
    sixth = Loud("destructor with a cycle")
    sixth.things = ffi.gc(ffi.new("int *"), functools.partial(lambda me, it: None, sixth))


# The standard library.


class Pair(ctypes.Structure):
    _fields_ = (("number", ctypes.c_int), ("thing", ctypes.py_object))


class Linked(ctypes.Structure):
    pass


Linked._fields_ = (("next", ctypes.POINTER(Linked)), ("number", ctypes.c_int))
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)


@program()
def ctypes_structures() -> None:
    first = Holder("structure")
    first.things = Pair(3, first)
    second = Loud("callback")
    second.things = CALLBACK(functools.partial(lambda me, x: x + len(me.array), second))
    print(second.things(4))
    third = Holder("linked")
    one, two = Linked(), Linked()
    one.next, two.next = ctypes.pointer(two), ctypes.pointer(one)
    third.things = one
    one.holder = third
    fourth = Holder("array")
    several: Any = ctypes.py_object * 3
    fourth.things = several(fourth, fourth.array, None)
    fifth = Holder("memory")
    fifth.things = numpy.ctypeslib.as_array((ctypes.c_double * 8)())
    fifth.more = fifth.array.ctypes
    sixth = Holder("pointer")
    sixth.things = ctypes.pointer(ctypes.py_object(sixth))
    sixth.more = ctypes.cast(sixth.things, ctypes.c_void_p)

    class Made(ctypes.Structure):
        _fields_ = (("x", ctypes.c_short), ("y", ctypes.c_short * 4))
        holder = Holder("class")

    Made.holder.things = Made


@program()
def memory_that_is_shared() -> None:
    memory: Any = shared_memory.SharedMemory(create=True, size=256)
    memory.unlink()
    first = Holder("shared", memory)
    first.more = memory.buf[:16]
    first.more.release()
    other = shared_memory.SharedMemory(create=True, size=256)
    other.unlink()
    # It cannot be closed while the array is there, and says so.
    Loud("shared array", other).array = numpy.ndarray(8, buffer=other.buf)


@program()
def memory_maps() -> None:
    class Mapped(mmap.mmap):
        holder: Any = None

    plain = mmap.mmap(-1, 8192)
    plain[:4] = b"some"
    first = Holder("map", plain, memoryview(plain)[2:4])
    first.array = numpy.frombuffer(plain, numpy.uint8)
    mapped = Mapped(-1, 4096)
    mapped.holder = Loud("subclass", mapped)
    mapped.holder.array = numpy.frombuffer(mapped, numpy.uint8)
    with tempfile.TemporaryFile() as file:
        file.write(bytes(1000))
        file.flush()
        second = Holder("file", mmap.mmap(file.fileno(), 0))
        second.array = numpy.frombuffer(second.things[0], numpy.uint8)
        with contextlib.suppress(BufferError):
            second.things[0].close()


@program()
def sqlite_connections() -> None:
    class Sum:
        def step(self, value: float) -> None: ...

        def finalize(self) -> int:
            return 3

    class Connection(sqlite3.Connection):
        holder: Any = None

    def collate(me: Any, a: str, b: str) -> int:
        return (a > b) - (a < b)

    for kind in (Holder, Loud):
        holder = kind("connection")
        connection = sqlite3.connect(":memory:", factory=Connection)
        connection.holder = holder
        holder.things = [connection]
        connection.create_function("of_mine", 1, functools.partial(lambda me, x: x + 1, holder))
        connection.create_aggregate("sum_of_mine", 1, Sum)
        connection.create_collation("mine", functools.partial(collate, holder))
        connection.set_trace_callback(holder.none)
        connection.set_progress_handler(holder.none, 1000)
        connection.set_authorizer(lambda *_, me=holder: 0)
        connection.row_factory = sqlite3.Row
        connection.execute("create table t (a, b)")
        values = [(n, holder.array) for n in range(5)]
        connection.executemany("insert into t values (?, ?)", values)
        cursor = connection.execute("select of_mine(a), b from t order by a")
        holder.things += [cursor, cursor.fetchone()]
        holder.more = None
        print([next(iter(row)) for row in connection.execute("select of_mine(a) from t")])
        connection.close()
    kept = Holder("open")
    kept.things = sqlite3.connect(":memory:", factory=Connection)
    kept.things.holder = kept
    kept.things.execute("select 1 union select 2").fetchone()


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
def structs() -> None:
    class Struct(struct.Struct):
        holder: Any = None

    own = Struct("if")
    own.holder = Holder("structure", own, struct.Struct("d").iter_unpack(bytes(64)))
    own.holder.array = numpy.frombuffer(own.pack(1, 2), numpy.uint8)
    second = Loud("iterator")
    second.things = struct.Struct("d").iter_unpack(second.array)
    print(next(second.things))


@program()
def decimals() -> None:
    class Decimal(decimal.Decimal):
        holder: Any = None

    class Context(decimal.Context):
        holder: Any = None

    number = Decimal("1.5")
    number.holder = Holder("decimal", number)
    context = Context(prec=5)
    context.holder = Loud("context", context, context.traps, context.flags)
    third = Holder("manager")
    third.things = (decimal.localcontext(context), third)
    with decimal.localcontext() as inner:
        Holder("inner", inner).more = inner.copy()
    print(context.divide(number, decimal.Decimal(3)))


@program()
def elements() -> None:
    class Element(ElementTree.Element):
        holder: Any = None

    tree = ElementTree.fromstring("<a><b x='1'>t<c/></b><b/></a>")
    tree[0].append(tree)
    Holder("elements", tree, tree.iter(), tree[0].attrib)
    own = Element("own")
    own.append(own)
    own.holder = Loud("subclass", own)
    own.set("array", own.holder.array)
    own.text = own.holder

    class Target:
        def __init__(self) -> None:
            self.holder = Holder("target", self)

        def start(self, tag: str, attributes: Any) -> None: ...

        def close(self) -> str:
            return "closed"

    target = Target()
    parser = ElementTree.XMLParser(target=target)
    target.holder.more = parser
    parser.feed("<a><b>")
    builder = Loud("builder")
    builder.things = ElementTree.TreeBuilder(element_factory=lambda *_, me=builder: Element("x"))
    builder.things.start("x", {})
    pull = Holder("pull")
    pull.things = ElementTree.XMLPullParser(["start", "end"])
    pull.things.feed("<a><b/>")
    pull.more = pull.things.read_events()


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


@program()
def patterns() -> None:
    class Text(str):
        holder: Any = None

    text = Text("one two")
    match = re.match(r"(\w+)", text)
    text.holder = Holder("match", match, text)
    scanner = re.compile(r"\w").scanner(text)  # type: ignore[attr-defined]
    text.holder.more = [scanner, scanner.search()]
    found = Text("three four")
    found.holder = Loud("iterator", re.finditer(r"\w", found))
    next(found.holder.things[0])
    lexer = Holder("scanner")
    actions: Any = [(r"\w+", lambda s, t, me=lexer: t), (r"\s+", None)]
    lexer.things = re.Scanner(actions)  # type: ignore[attr-defined]
    print(lexer.things.scan("a b")[0])
    lexer.more = None
    print(re.sub(r"\w", lambda m, me=lexer: "x", "abc"))  # type: ignore[misc]


ZONE = b"TZif" + bytes(16) + struct.pack(">6l", 0, 0, 0, 0, 1, 4) + b"\0\0\x0e\x10\0\0ABC\0"


@program()
def zones() -> None:
    import datetime

    class Zone(zoneinfo.ZoneInfo):
        holder: Any = None

    zone = Zone.from_file(io.BytesIO(ZONE), key="Own/Zone")
    zone.holder = Holder("zone", zone, datetime.datetime(2020, 1, 1, tzinfo=zone))
    second: Any = Loud("plain")
    second.things = zoneinfo.ZoneInfo.from_file(io.BytesIO(ZONE), key=second)

    class Offset(datetime.tzinfo):
        holder: Any = None

        def utcoffset(self, _: Any) -> datetime.timedelta:
            return datetime.timedelta(hours=1)

        dst = utcoffset

        def tzname(self, _: Any) -> str:
            return "own"

    offset = Offset()
    offset.holder = Holder("offset", datetime.datetime.now(offset), datetime.time(tzinfo=offset))
    print(zone.utcoffset(datetime.datetime(2021, 5, 5)))


@program()
def files() -> None:
    class Raw(io.RawIOBase):
        holder: Any = None

        def readable(self) -> bool:
            return True

        def writable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            buffer[:1] = b"x"
            return 1

        def write(self, data: Any) -> int:
            print("written", bytes(data))
            return len(data)

        def close(self) -> None:
            if not self.closed:
                print("closed", type(self.holder).__name__)
            super().close()

    for kind in (io.BufferedReader, io.BufferedWriter, io.BufferedRandom):
        raw = Raw()
        raw.seekable = lambda: True  # type: ignore[method-assign]
        raw.seek = lambda *_: 0  # type: ignore[method-assign]
        raw.holder = Loud(kind.__name__)
        buffered = kind(raw)
        raw.holder.things = buffered
        if kind is io.BufferedWriter:
            buffered.write(b"at the end")
    raw = Raw()
    raw.holder = Holder("text")
    raw.holder.things = io.TextIOWrapper(io.BufferedWriter(raw), encoding="ascii")
    raw.holder.things.write("words")
    pair = Holder("bytes")
    stream = io.BytesIO(bytes(8))
    pair.things = stream
    pair.array = numpy.frombuffer(stream.getbuffer(), numpy.uint8)


@program()
def small_parts() -> None:
    """What else of the standard library is written in C and holds objects."""

    class Deque(collections.deque[Any]):
        holder: Any = None

    class Ordered(collections.OrderedDict[Any, Any]):
        pass

    deque = Deque(maxlen=4)
    deque.holder = Holder("deque", deque, iter(deque))
    deque.append(deque)
    ordered = Ordered()
    ordered["me"] = Loud("ordered", ordered, iter(ordered), ordered.items())
    default: Any = collections.defaultdict(lambda: default)
    default["me"] = Holder("default", default)
    simple = types.SimpleNamespace()
    simple.holder = Holder("namespace", simple, types.MappingProxyType(vars(simple)))
    picklers = Holder("pickler")
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream)
    pickler.dump([picklers.array])
    picklers.things = [pickler, pickler.memo, pickle.Unpickler(io.BytesIO(stream.getvalue()))]
    picklers.more = picklers.things[2].load()
    rows = Loud("rows")
    rows.things = csv.reader(line for line, _ in [("a,b", rows), ("c,d", rows)])
    print(next(rows.things))
    getters = Holder("getters")
    getters.things = operator.methodcaller("method", getters)
    getters.more = operator.itemgetter(0, 1)
    views = Holder("views")
    views.things = memoryview(views.array)[2:]
    views.more = weakref.proxy(views, views.none)
    objects = Holder("array of objects")
    objects.array = numpy.array([None, {"x": 1}], dtype=object)
    alias = Holder("alias", list[Any], collections.abc.Callable[[int], Any])
    alias.more = types.GenericAlias(list, (Told("argument"),))


# PyTorch.


def loaded(method: str, persistent: bool = False) -> None:
    import torch
    from torch.utils.data import DataLoader, _utils

    # A collector that meets an iterator breaks its queues, so the workers never hear of the end:
    # PyTorch waits this long for each of them, 5 seconds otherwise, and then ends them.
    _utils.MP_STATUS_CHECK_INTERVAL = 0.5
    samples: Any = Samples()
    holder = Holder("data set")
    holder.things = samples
    samples.holder = holder
    loader = DataLoader(
        samples,
        num_workers=1 if method == "spawn" else 2,  # which imports PyTorch anew in each
        multiprocessing_context=method,
        persistent_workers=persistent,
        worker_init_fn=leave_the_heap,
    )
    samples.loader = loader
    for _ in range(2 if persistent else 1):
        print(sorted(map(float, torch.cat(list(loader)))))
    iterator = iter(loader)
    print(float(next(iterator)) in range(100))
    samples.iterator = iterator
    samples.tensor = torch.zeros(5, requires_grad=True)
    samples.told = Told("samples")


def leave_the_heap(worker: int) -> None:
    """Full collections in a worker pass PyTorch's modules over, and take no second each."""
    gc.freeze()


class Samples:
    """A data set whose workers make garbage and collect it, too."""

    def __len__(self) -> int:
        return 6

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __getitem__(self, index: int) -> float:
        ring: list[Any] = [numpy.zeros(9)]
        ring.append(ring)
        del ring
        return index + 100.0 * (gc.collect() < 1)


@program("torch")
def loader_fork() -> None:
    loaded("fork")


@program("torch")
def loader_spawn() -> None:
    loaded("spawn")


@program("torch")
def loader_persistent() -> None:
    loaded("fork", persistent=True)


@program("torch")
def tensors() -> None:
    import torch

    leaf = torch.zeros(8, requires_grad=True)
    hooked: Any = Loud("hook")
    hooked.things = leaf * 2
    hooked.things.register_hook(lambda gradient, me=hooked: None)
    view: Any = Holder("view")
    view.things = torch.from_numpy(view.array)
    view.things.owner = view
    module: Any = torch.nn.Linear(3, 3)
    module.holder = Holder("module", module)
    module.register_forward_hook(lambda *_, me=module: None)
    print(tuple(module(torch.ones(3)).shape))
    storage: Any = Holder("storage", leaf.untyped_storage(), leaf.detach().numpy())
    storage.more = None


@program()
def exhausted() -> None:
    """Collections for which there is no memory."""
    holder = Loud("exhausted")
    holder.things = {number: [holder] for number in range(100)}
    del holder
    balloon: list[bytearray] = []
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    for size in (2**18, 2**14, 2**10):
        with contextlib.suppress(MemoryError):
            # Not a loop: how often it goes round is no business of a tracer's.
            balloon.extend(map(bytearray, itertools.repeat(size)))
    found = gc.collect()
    balloon.clear()
    resource.setrlimit(resource.RLIMIT_AS, before)
    print("with no memory", found)


@program()
def nothing_left() -> None:
    """A collection while malloc has not even a few bytes to give."""
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    library.malloc.argtypes = [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    taken = (ctypes.c_void_p * 1_000_000)()
    count = 0
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + 2**20
    kept: list[list[Any]] = [[], [], []]
    for each in kept:
        each.append(each)
        each.append(numpy.zeros(9))
    del each
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    for size in (2**20, 2**16, 2**12, 2**8, 64, 16):
        while count < len(taken) and (block := library.malloc(size)):
            taken[count] = block
            count += 1
    kept.clear()
    found = gc.collect()
    for number in range(count):
        library.free(taken[number])
    resource.setrlimit(resource.RLIMIT_AS, before)
    print("with nothing left", found)


# Running them.


def play(function: Callable[[], object], rounds: tuple[int, ...] = ROUNDS) -> None:
    """Make the garbage, collect it, and print what came of that.

    How many objects of ``multiprocessing`` are still in cycles when a program is done depends on
    when its threads ended, without a watch too.
    """
    counted = function.__name__ not in SLOW
    for generation in rounds:
        function()
        sys.stdout.flush()
        found = gc.collect(generation)
        print("collected", found if counted else found > 0)
    found = gc.collect()
    print("left", found if counted else "", len(gc.garbage), gc.get_debug(), gc.isenabled())
    sys.stdout.flush()


def main() -> None:
    import conditions
    from compiled import compile_into

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PROGRAMS)}")
    parser.add_argument("--built", default="", help="folder for modules that are compiled")
    args = parser.parse_args()
    names = [f"extensions:{name}" for name in args.names or PROGRAMS]
    with tempfile.TemporaryDirectory() as folder:
        built = args.built or folder
        compile_into(Path(built))
        sys.exit(conditions.compare_all(names, ["", "beside"], built))


if __name__ == "__main__":
    main()
