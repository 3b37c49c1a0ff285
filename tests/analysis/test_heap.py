"""The live heap: what is counted, who owns it, what it is for, what changed."""

from __future__ import annotations

import array as array_module
import ctypes
import gc
import io
import json
import mmap
import re
import signal
import sys
import threading
import tracemalloc
import types
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import cyclescope
from support import interrupts
from support.heap_rows import of, row

interrupts.hear()

MIB = 1 << 20
history: list[Any] = []
failure: Any = None
model: Any = None


@pytest.fixture(autouse=True)
def tidy() -> Iterator[None]:
    gc.collect()
    yield
    history.clear()
    globals()["model"] = None
    gc.collect()


def array(mebibytes: float = 1.0) -> Any:
    return numpy.zeros(int(mebibytes * MIB), dtype=numpy.uint8)


def test_buffers_are_found_with_their_owner() -> None:
    history.extend(array() for _ in range(3))
    heap = cyclescope.heap()
    buffer = of(heap, history[1].ctypes.data)
    assert (buffer.bytes, buffer.device, buffer.dtype) == (MIB, "cpu", "uint8")
    assert buffer.shape == (MIB,)
    assert buffer.owner == f"module `{__name__}` → `history` (list, 3 items) → [1] → ndarray"
    assert buffer.module == __name__
    assert buffer.type_name == "numpy.ndarray"
    assert buffer.category == "other"
    assert buffer.alone


def test_arrays_in_what_the_collector_does_not_track_are_found() -> None:
    history.append((array(), {"deep": (array(),)}))
    gc.collect()
    assert not gc.is_tracked(history[0][1]["deep"])
    heap = cyclescope.heap()
    assert "['deep'] (tuple, 1 item) → [0]" in of(heap, history[0][1]["deep"][0].ctypes.data).owner


def test_views_share_one_buffer() -> None:
    history.append(array())
    history.extend(history[0][i:] for i in range(5))
    heap = cyclescope.heap()
    assert of(heap, history[0].ctypes.data).holders == 6


EXPORTERS: dict[str, Callable[[], Any]] = {
    "bytes": lambda: bytes(MIB),
    "bytearray": lambda: bytearray(MIB),
    "memoryview": lambda: memoryview(bytearray(MIB)),
    "array.array": lambda: array_module.array("B", bytes(MIB)),
    "mmap": lambda: mmap.mmap(-1, MIB),
    "ctypes": lambda: (ctypes.c_char * MIB)(),
    "BytesIO": lambda: io.BytesIO(bytes(MIB)).getbuffer(),
}


@pytest.mark.parametrize("name", EXPORTERS)
def test_memory_of_another_object_counts_once_with_its_owner(name: str) -> None:
    history.append(numpy.frombuffer(EXPORTERS[name](), numpy.uint8))
    history.append(history[0][5:])
    buffer = of(cyclescope.heap(), history[0].ctypes.data)
    assert (buffer.bytes, buffer.holders, buffer.alone) == (MIB, 2, True)
    assert f"module `{__name__}` → `history`" in buffer.owner
    del history[1]
    assert row(cyclescope.heap().top("owner"), "`history`").retained_bytes == MIB


def test_the_whole_of_what_is_lent_counts() -> None:
    lent = bytearray(MIB)
    history.append(numpy.frombuffer(lent, numpy.uint8, count=10, offset=MIB // 2))
    pointer = numpy.frombuffer(lent, numpy.uint8).ctypes.data
    buffer = of(cyclescope.heap(), pointer)
    assert (buffer.bytes, buffer.alone) == (MIB, False)  # This function has it too.
    del lent
    assert of(cyclescope.heap(), pointer).alone


def test_what_no_array_uses_is_not_counted() -> None:
    before = cyclescope.heap().host_bytes
    history.append(bytearray(MIB))
    assert cyclescope.heap().host_bytes < before + MIB


def test_a_closed_exporter_is_no_error() -> None:
    closed = mmap.mmap(-1, MIB)
    closed.close()
    released = memoryview(bytearray(MIB))
    released.release()
    history.extend([closed, released])
    cyclescope.heap()


def test_a_class_with_a_buffer_of_its_own_is_not_asked() -> None:
    asked: list[int] = []

    class Lender(bytearray):
        def __buffer__(self, flags: int) -> memoryview:
            asked.append(flags)
            return memoryview(b"")

    class Taker(bytearray):
        def __release_buffer__(self, view: memoryview) -> None:
            asked.append(len(view))

    history.extend([Lender(MIB), Taker(MIB)])
    cyclescope.heap()
    assert asked == []


def test_what_a_cycle_holds_is_freed_by_a_collection() -> None:
    class Trainer: ...

    trainer = Trainer()
    trainer.outputs = [array()]  # type: ignore[attr-defined]
    history.append(trainer)
    del trainer
    owner = row(cyclescope.heap().top("owner"), "`history`")
    assert (owner.retained_bytes, owner.collected_bytes) == (MIB, 0)
    history[0].me = history[0]
    history.append(array())
    heap = cyclescope.heap()
    owner = row(heap.top("owner"), "`history`")
    assert (owner.retained_bytes, owner.collected_bytes) == (2 * MIB, MIB)
    assert [it.by_collection for it in heap.buffers if "`history`" in it.owner].count(True) == 1
    said = "1.0 MiB of it freed only by a garbage collection, once the reference is deleted"
    assert said in " ".join(str(heap).split())
    assert said in heap.to_html()
    (told,) = [
        it for it in json.loads(heap.top("owner").to_json())["rows"] if "history" in it["name"]
    ]
    assert told["collected_bytes"] == MIB


def test_with_a_variable_goes_what_the_cell_of_an_inner_function_has() -> None:
    data = array()
    seen = weakref.ref(data)

    def inner() -> Any:
        return data  # noqa: F821

    owner = row(cyclescope.heap().top("owner"), "local `data`")
    assert owner.retained_bytes == MIB
    del data
    assert seen() is None
    with pytest.raises(NameError):
        inner()


def fails() -> None:
    batch = array()
    raise ValueError(len(batch))


def test_with_a_variable_goes_what_a_traceback_behind_it_keeps() -> None:
    class Trainer: ...

    trainer: Any = Trainer()
    trainer.best = array(2)
    try:
        fails()
    except ValueError as error:
        trainer.last = error
    top = cyclescope.heap().top("owner")
    rows = [it for it in top.rows if "local `trainer`" in it.name]
    retained = {it.name.startswith("local `trainer`"): it.retained_bytes for it in rows}
    assert retained == {True: 3 * MIB, False: MIB}
    del trainer
    assert not [it for it in cyclescope.heap().top("owner").rows if "`batch`" in it.name]


def test_with_an_exception_goes_what_its_traceback_keeps() -> None:
    def inner() -> None:
        batch = {"x": array(2)}
        raise ValueError(len(batch))

    def outer() -> None:
        try:
            inner()
        except ValueError as error:
            kept = error
            raise KeyError(str(kept)) from kept

    global failure
    try:
        outer()
    except KeyError as error:
        failure = error
    failure.data = array(1)
    rows = cyclescope.heap().top("owner").rows
    own = [it for it in rows if re.fullmatch(r"module \S+ → `failure` \(KeyError\)", it.name)]
    assert [it.retained_bytes for it in own] == [3 * MIB]
    failure = None
    gc.collect()
    assert not [it for it in cyclescope.heap().top("owner").rows if "`batch`" in it.name]


def test_what_two_owners_share_is_retained_by_neither() -> None:
    history.append(array())
    cyclescope_test = types.ModuleType("cyclescope_test")
    cyclescope_test.also = [history[0]]  # type: ignore[attr-defined]
    sys.modules["cyclescope_test"] = cyclescope_test
    try:
        assert not of(cyclescope.heap(), history[0].ctypes.data).alone
    finally:
        del sys.modules["cyclescope_test"]
    del cyclescope_test
    assert of(cyclescope.heap(), history[0].ctypes.data).alone


def test_tables_by_owner_module_and_class() -> None:
    history.extend(array() for _ in range(4))
    heap = cyclescope.heap()
    owner = row(heap.top("owner"), "`history`")
    assert (owner.count, owner.host_bytes, owner.device_bytes) == (4, 4 * MIB, 0)
    assert owner.retained_bytes == 4 * MIB
    assert owner.categories == {"other": 4 * MIB}
    module = row(heap.top("module"), __name__)
    assert module.host_bytes >= 4 * MIB
    by_class = {row.name: row for row in heap.top("class", 1000).rows}
    assert by_class["list"].host_bytes >= 4 * MIB
    assert by_class["numpy.ndarray"].host_bytes >= 4 * MIB
    assert len(heap.top("class", 1).rows) == 1
    assert heap.top("class", 1).omitted == len(by_class) - 1
    assert heap.host_bytes >= 4 * MIB


def test_nested_objects_of_one_class_count_once() -> None:
    def in_lists() -> int:
        rows = {row.name: row for row in cyclescope.heap().top("class", 99).rows}
        return rows["list"].host_bytes if "list" in rows else 0

    # Tests before this one may have left some.
    before = in_lists()
    inner = [array()]
    for _ in range(10):
        inner = [inner]
    history.append(inner)
    del inner
    assert MIB <= in_lists() - before < 2 * MIB


def test_the_line_that_allocated() -> None:
    assert "No allocations were traced" in str(cyclescope.heap().top("site"))
    tracemalloc.start()
    try:
        history.append([numpy.zeros(MIB, dtype=numpy.uint8)])
        line = sys._getframe().f_lineno - 1
        site = of(cyclescope.heap(), history[0][0].ctypes.data).site
    finally:
        tracemalloc.stop()
    assert site == f"{__file__}:{line}"


def test_what_grew_is_named_without_indices() -> None:
    history.append(array())
    old = cyclescope.heap()
    history.extend(array() for _ in range(3))
    diff = cyclescope.heap().diff(old)
    name = f"module `{__name__}` → `history` (list) → [x] → ndarray"
    assert [row for row in diff.rows if "`history`" in row[0]] == [(name, 3 * MIB, 3)]
    assert diff.bytes == 3 * MIB
    assert "+3.0 MiB in total" in str(diff)


def test_a_local_variable_is_the_same_wherever_its_function_has_come_to() -> None:
    kept = [array()]
    old = cyclescope.heap()
    kept.append(array())
    diff = cyclescope.heap().diff(old)
    (row,) = (row for row in diff.rows if "local `kept`" in row[0])
    assert row[1:] == (MIB, 1)
    assert diff.bytes == MIB
    page = diff.to_html()
    assert "local <code>kept</code>" in page
    assert f"{Path(__file__).name}, thread" in page
    del kept


def test_nothing_is_kept_and_nothing_changed() -> None:
    class Thing: ...

    thing = Thing()
    thing.array = array()  # type: ignore[attr-defined]
    history.append(thing)
    watch = weakref.ref(thing)
    before = sys.getrefcount(thing)
    heap = cyclescope.heap()
    assert sys.getrefcount(thing) == before
    history.clear()
    del thing
    assert watch() is None
    assert any("Thing" in buffer.owner for buffer in heap.buffers)


def test_collection_goes_on_as_before() -> None:
    assert gc.isenabled()
    cyclescope.heap()
    assert gc.isenabled()
    gc.disable()
    try:
        cyclescope.heap()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_numbers_of_the_look_itself() -> None:
    heap = cyclescope.heap()
    assert heap.objects >= len(gc.get_objects()) - 1000
    assert heap.references > heap.objects
    assert set(heap.phases) == {"graph", "purposes", "ways", "dominators", "names", "release"}
    assert sum(heap.phases.values()) == pytest.approx(heap.pause_ms, rel=0.2)
    assert 0 < heap.working_bytes < 1000 * heap.objects


def test_garbage_is_counted_as_unreachable() -> None:
    gc.disable()
    try:
        gc.collect()
        before = cyclescope.heap().unreachable
        for _ in range(100):
            ring: list[Any] = []
            ring.append(ring)
        del ring
        assert cyclescope.heap().unreachable - before == 100
    finally:
        gc.enable()


def test_an_interrupt_ends_it() -> None:
    def interrupt() -> None:
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        timer = threading.Timer(0.01, signal.raise_signal, [signal.SIGINT])
        timer.start()
        for _ in range(3):
            cyclescope.heap()
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.SIGINT]


def test_bad_tables_get_clear_answers() -> None:
    with pytest.raises(ValueError, match="'owner', 'class', 'module', 'site' or 'category'"):
        cyclescope.heap().top("size")


def test_text_and_json() -> None:
    history.append(array())
    heap = cyclescope.heap()
    assert "`history` (list, 1 item)" in str(heap)
    assert all(len(line) <= 100 for line in str(heap).splitlines())
    data = json.loads(heap.to_json())
    assert data["schema"] == 1
    assert sum(buffer["bytes"] for buffer in data["buffers"]) == heap.host_bytes
    assert json.loads(heap.top("class").to_json())["by"] == "class"
