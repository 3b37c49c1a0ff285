"""Types of other packages, and of modules that Cython, pybind11 and a C compiler make."""

from __future__ import annotations

import functools
import io
import operator
from collections.abc import Iterator
from typing import Any

import numpy

from extension_programs.holders import Holder, Loud, program


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
