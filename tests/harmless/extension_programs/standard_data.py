"""Types of the standard library that hold something: memory, files, databases, numbers, texts."""

from __future__ import annotations

import collections
import contextlib
import csv
import ctypes
import decimal
import functools
import io
import mmap
import operator
import pickle
import re
import sqlite3
import struct
import tempfile
import types
import weakref
import xml.etree.ElementTree as ElementTree
import zoneinfo
from multiprocessing import shared_memory
from typing import Any

import numpy

from extension_programs.holders import Holder, Loud, Told, program


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
