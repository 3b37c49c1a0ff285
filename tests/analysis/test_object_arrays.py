"""NumPy's arrays of objects, whose references the collector does not know."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import cyclescope

kept: list[Any] = []


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    kept.clear()


class Holder:
    """An object that may be in an array."""


def objects(*shape: int) -> Any:
    return numpy.empty(shape, dtype=object)


def test_a_loop_through_an_array_is_said_to_be_freed_by_no_collection() -> None:
    holder: Any = Holder()
    holder.items = objects(3)
    holder.items[1] = holder
    seen = weakref.ref(holder)
    array = holder.items
    del holder
    gc.collect()
    held = seen()
    assert held is not None
    retention = cyclescope.why_alive(held)
    assert [step.edge for step in retention.loops[0].steps[:2]] == [".items", "[1]"]
    assert "no collection can free" in str(retention)
    array[1] = None
    del held, retention
    assert seen() is None


@pytest.mark.parametrize("shape", [(4,), (2, 2), (1, 2, 2)])
def test_what_is_in_an_array_is_kept_by_it(shape: tuple[int, ...]) -> None:
    array = objects(*shape)
    array.flat[2] = Holder()
    kept.append(array)
    del array
    (path,) = cyclescope.why_alive(kept[0].flat[2]).paths
    assert path.steps[-2].edge == ("[2]" if len(shape) == 1 else "an element")
    assert path.words.startswith("module ")


def test_what_no_collector_tracks_is_found_too() -> None:
    inner = objects(1)
    inner[0] = {"x": numpy.zeros(1 << 16, numpy.uint8)}
    outer = objects(2)
    outer[1] = inner
    kept.append(outer[:])
    del inner, outer
    (path,) = cyclescope.why_alive(kept[0][1][0]["x"]).paths
    assert [step.edge for step in path.steps][-5:] == [".base", "[1]", "[0]", "['x']", ""]
    sizes = [buffer.bytes for buffer in cyclescope.heap().buffers]
    assert 1 << 16 in sizes


def test_frozen_garbage_is_not_said_to_be_freed() -> None:
    holder: Any = Holder()
    holder.other = Holder()
    holder.other.other = holder
    gc.freeze()
    try:
        seen = weakref.ref(holder)
        del holder
        gc.collect()
        text = str(cyclescope.why_alive(seen()))
        assert "garbage that no collection frees: gc.freeze() excluded it" in text
        assert "C++" not in text
    finally:
        gc.unfreeze()


FIELDS: dict[str, Any] = {
    "field": [("key", "i4"), ("item", object)],
    "aligned": numpy.dtype([("key", "i1"), ("item", object)], align=True),
    "field of a field": [("key", "i1"), ("row", [("at", "f8"), ("item", object)])],
    "array in a field": [("key", "i1"), ("item", object, (2, 2))],
    "two": [("other", object), ("item", object)],
    "title": [(("the item", "item"), object), ("key", "i4")],
}


@pytest.mark.parametrize("name", FIELDS)
def test_what_is_in_a_field_of_objects_is_kept_by_the_array(name: str) -> None:
    array = numpy.zeros(3, FIELDS[name])
    field = array["row"]["item"] if "of a field" in name else array["item"]
    holder = Holder()
    field[1] = holder
    seen = weakref.ref(holder)
    count = numpy.count_nonzero(field == holder)
    del holder, field
    kept.append(array)
    del array
    report = cyclescope.why_alive(seen())
    assert report.is_enough, str(report)
    assert [keeper.words.split("[0]")[0] for keeper in report.keepers] == [
        f"module `{__name__}` → `kept` (list, 1 item) → "
    ] * count, str(report)
    assert "C or C++" not in str(report)
    kept.clear()
    assert seen() is None
