"""Why is an object alive? Every kind of root, and paths that read well."""

from __future__ import annotations

import ctypes
import gc
import json
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

import cyclescope

history: list[Any] = []
cache: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def tidy() -> Iterator[None]:
    gc.collect()
    yield
    history.clear()
    cache.clear()
    gc.collect()


def array() -> Any:
    return numpy.zeros(1 << 10, dtype=numpy.float32)


def words(*things: Any) -> list[str]:
    """The paths to some things, but for those of the variables of this file's own functions."""
    paths = cyclescope.why_alive(*things).paths
    return [path.words for path in paths if "local `things`" not in path.words]


def held_from(root: str, thing: Any) -> list[cyclescope.RetentionPath]:
    return [path for path in cyclescope.why_alive(thing).paths if path.root == root]


class Owner:
    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)


# Roots.


def test_a_module_variable_is_named_with_the_way_to_the_object() -> None:
    history.extend(array() for _ in range(30))
    (path,) = words(history[17])
    name = __name__
    assert path == f"module `{name}` → `history` (list, 30 items) → [17] → ndarray"


def test_the_steps_say_the_same() -> None:
    cache["model"] = Owner(weight=array())
    (path,) = held_from("module", cache["model"].weight)
    assert [step.edge for step in path] == [".cache", "['model']", ".weight", ""]
    assert path[-1].type_name == "numpy.ndarray"
    assert path[2].label == f"{__name__}.Owner"
    assert (path[2].location or "").startswith(__file__)
    assert len(path) == len(path.steps) == 4
    with pytest.raises(IndexError, match="step index 9 out of range for a path of 4 steps"):
        path[9]


def test_a_local_variable_is_named_with_function_line_and_thread() -> None:
    def train_step() -> list[str]:
        batch = array()
        return [path.words for path in cyclescope.why_alive(batch).paths]

    line = train_step.__code__.co_firstlineno + 2
    assert train_step() == [
        f"local `batch` in `train_step`, test_why_alive.py:{line}, thread MainThread → ndarray"
    ]


def test_variables_of_other_threads_are_found() -> None:
    ready, done = threading.Event(), threading.Event()
    things: list[Any] = []

    def work() -> None:
        batch = array()
        things.append(batch)
        ready.set()
        done.wait()

    thread = threading.Thread(target=work, name="loader-3")
    thread.start()
    ready.wait()
    thing = things.pop()
    found = [path.words for path in cyclescope.why_alive(thing).paths]
    done.set()
    thread.join()
    assert any("local `batch` in `work`" in it and "thread loader-3" in it for it in found), found


def test_variables_that_inner_functions_use_are_named() -> None:
    def outer() -> list[str]:
        kept = array()

        def inner() -> Any:
            return kept

        cache["f"] = inner
        return [path.words for path in cyclescope.why_alive(kept).paths]

    found = outer()
    assert any(it.startswith("local `kept` in `outer`") for it in found), found
    assert any("closure variable 'kept'" in it for it in found), found


def test_a_traceback_is_named_with_what_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        batch = array()
        raise ValueError(len(batch))

    try:
        fails()
    except ValueError as error:
        monkeypatch.setattr(sys, "last_exc", error, raising=False)
    holder = vars(sys)["last_exc"].__traceback__
    assert holder is not None
    assert holder.tb_next is not None
    frame = holder.tb_next.tb_frame
    (thing,) = [it for it in gc.get_referents(frame) if isinstance(it, numpy.ndarray)] or [
        frame.f_locals["batch"]
    ]
    del holder, frame
    found = words(thing)
    line = fails.__code__.co_firstlineno + 2
    wanted = (
        f"local `batch` in `fails`, test_why_alive.py:{line}, kept by the traceback in "
        "module `sys` → `last_exc` (ValueError) → ndarray"
    )
    assert wanted in found, found


def test_several_ways_are_told_apart() -> None:
    thing = array()
    history.append(thing)
    cache["again"] = thing
    found = words(thing)
    assert sum("`history`" in it for it in found) == 1
    assert sum("`cache`" in it for it in found) == 1


def test_ways_of_one_length_come_in_the_order_of_their_names() -> None:
    """Not in that of addresses, which is another one in each run."""
    array = numpy.zeros(10)
    third, first, second, fourth = (Owner(array=array) for _ in range(4))
    kept = cyclescope.why_alive(array)
    for listed in (kept.paths, [keeper.path for keeper in kept.keepers]):
        ways = [path.words for path in listed if "(Owner)" in path.words]
        assert len(ways) == 4
        assert ways == sorted(ways)
    del first, second, third, fourth


def test_ways_alike_are_counted_once() -> None:
    thing = array()
    history.extend([thing] * 1 + [[thing] for _ in range(20)])
    paths = held_from("module", thing)
    assert len(paths) == 2
    assert sorted(path.alike for path in paths) == [1, 20]


def test_several_objects_at_once() -> None:
    history.extend([array(), array(), array()])
    report = cyclescope.why_alive(*history)
    (path,) = report.paths
    assert path.alike == 3
    data = json.loads(report.to_json())
    assert data["paths"][0]["leads_to"] == [0, 1, 2]
    assert len(data["objects"]) == 3


def test_what_nothing_else_holds() -> None:
    report = cyclescope.why_alive(array())
    assert [path.words for path in report.paths] == []
    assert "only this call keeps it alive" in str(report)


def itself() -> Owner:
    owner = Owner(thing=array())
    owner.me = owner  # type: ignore[attr-defined]
    return owner


def in_own_dict() -> Owner:
    owner = itself()
    assert vars(owner)
    return owner


def in_own_list() -> Owner:
    owner = Owner(thing=array())
    owner.all = [owner]  # type: ignore[attr-defined]
    return owner


def itself_in_list() -> list[object]:
    things: list[object] = [array()]
    things.append(things)
    return things


@pytest.mark.parametrize("make", [itself, in_own_dict, in_own_list, itself_in_list])
def test_a_cycle_keeps_what_nothing_else_holds(make: Callable[[], object]) -> None:
    report = cyclescope.why_alive(make())
    assert "only unreachable objects refer to it" in str(report)
    assert [path.root for path in report.paths] == ["garbage"]
    gc.collect()


def test_garbage_is_told_from_what_is_held() -> None:
    gc.disable()
    try:
        owner = Owner(thing=array())
        owner.me = owner  # type: ignore[attr-defined]
        address = id(owner.thing)  # type: ignore[attr-defined]
        del owner
        (thing,) = [it for it in gc.get_objects() if type(it) is Owner]
        dictionary = thing.__dict__
        del thing
        report = cyclescope.why_alive(dictionary["thing"])
        assert id(dictionary["thing"]) == address
        assert any("local `dictionary`" in path.words for path in report.paths)
    finally:
        gc.enable()


def test_an_object_held_by_c_alone() -> None:
    thing = [array()]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    try:
        report = cyclescope.why_alive(thing)
        assert any("from C or C++" in note for note in report.notes), report.notes
    finally:
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(thing))
    assert cyclescope.why_alive(thing).notes == []


def test_what_the_call_itself_holds_is_no_holder() -> None:
    thing, boxes, box = [array()], [[array()]], {"thing": [array()]}
    alone = types.SimpleNamespace(thing=thing)
    calls: list[Callable[[], cyclescope.Retention]] = [
        lambda: cyclescope.why_alive(thing),
        lambda: cyclescope.why_alive(thing, thing),
        lambda: cyclescope.why_alive(alone.thing),
        lambda: cyclescope.why_alive(boxes[0]),
        lambda: cyclescope.why_alive(box["thing"], thing, boxes[0]),
        lambda: cyclescope.why_alive(*boxes),
        lambda: cyclescope.why_alive(*[thing, box["thing"]]),
        lambda: cyclescope.why_alive(*(thing, thing)),
    ]
    for number, call in enumerate(calls):
        assert call().notes == [], number
    for number, call in enumerate(calls):
        held = box["thing"] if number == 6 else boxes[0] if number in (3, 5) else thing
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))
        try:
            notes = call().notes
        finally:
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(held))
        assert any("from C or C++" in note for note in notes), number


def test_a_tuple_that_is_passed_item_by_item_is_a_holder() -> None:
    cache["pair"] = pair = (array(), array())
    del pair
    report = cyclescope.why_alive(*cache["pair"])
    assert report.is_enough, report
    assert report.notes == []
    assert [keeper.words for keeper in report.keepers] == [
        f"module `{__name__}` → `cache` (dict, 1 item) → ['pair']"
    ]
    box = types.SimpleNamespace(pair=cache.pop("pair"))
    report = cyclescope.why_alive(*box.pair)
    assert report.is_enough, report
    assert any("local `box`" in keeper.words for keeper in report.keepers), report


def mutually_recursive(thing: list[Any]) -> Callable[[int], object]:
    def even(number: int) -> object:
        return thing if number == 0 else odd(number - 1)

    def odd(number: int) -> object:
        return thing if number == 0 else even(number - 1)

    return even


def test_what_takes_a_collection_is_said() -> None:
    class Owner:
        def __init__(self) -> None:
            self.array = array()
            self.callback = lambda: self

    history.append(Owner())
    report = cyclescope.why_alive(history[0])
    assert report.is_enough
    assert report.by_collection
    assert "Remove this, and the garbage collector frees it:" in str(report)
    history[0] = mutually_recursive(thing := [array()])
    weak = weakref.ref(thing[0])
    report = cyclescope.why_alive(thing)
    assert report.is_enough
    assert report.by_collection
    del thing
    history.clear()
    assert weak() is not None
    gc.collect()
    assert weak() is None
    history.append([array()])
    report = cyclescope.why_alive(history[0])
    assert not report.by_collection
    assert "Remove this to free it:" in str(report)


def test_what_takes_a_collection_after_the_function_has_returned_is_said() -> None:
    class Owner:
        def __init__(self) -> None:
            self.callback = lambda: self

    def run() -> tuple[str, weakref.ref[Owner]]:
        owner = Owner()
        return str(cyclescope.why_alive(owner)), weakref.ref(owner)

    class Plain: ...

    def keeps_an_exception() -> tuple[str, weakref.ref[Plain]]:
        """Its traceback leads back to the frame."""
        plain = Plain()
        try:
            raise ValueError
        except ValueError as error:
            kept = error
        assert kept is not None
        return str(cyclescope.why_alive(plain)), weakref.ref(plain)

    for function in (run, keeps_an_exception):
        said, weak = function()
        assert weak() is not None
        assert "Released by the garbage collector after the function returns:" in said
        gc.collect()
        assert weak() is None

    def keeps_none() -> tuple[str, weakref.ref[Plain]]:
        plain = Plain()
        return str(cyclescope.why_alive(plain)), weakref.ref(plain)

    said, plain = keeps_none()
    assert plain() is None
    assert "Released when the function returns:" in said


def test_a_function_that_c_holds_is_no_local_variable() -> None:
    thing = array()

    def captures() -> object:
        return thing

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(captures))
    del captures
    report = cyclescope.why_alive(thing)
    held = [path for path in report.paths if path.root == "outside"]
    try:
        assert not report.is_enough
        assert "only" not in str(report).splitlines()[0]
        assert "perhaps by something else" in " ".join(str(report).split())
        assert any("captures" in path.words for path in held), report
    finally:
        function = next(it for it in gc.get_objects() if getattr(it, "__name__", "") == "captures")
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(function))


def test_bad_questions_get_clear_answers() -> None:
    with pytest.raises(TypeError, match="takes at least one object"):
        cyclescope.why_alive()
    with pytest.raises(TypeError, match="referrers of this int"):
        cyclescope.why_alive(12345)


def test_a_frozen_heap_is_seen_too() -> None:
    history.append([array()])
    gc.freeze()
    try:
        assert any("`history`" in it for it in words(history[0][0]))
    finally:
        gc.unfreeze()


def test_no_code_of_the_program_runs_and_nothing_is_kept() -> None:
    calls: list[str] = []

    class Hostile:
        def __getattribute__(self, name: str) -> Any:
            calls.append(name)
            return object.__getattribute__(self, name)

        def __eq__(self, other: object) -> bool:
            calls.append("eq")
            return True

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            calls.append("repr")
            return "hostile"

        def __del__(self) -> None:
            calls.append("del")

    thing = array()
    holder = Hostile()
    holder.__dict__["thing"] = thing
    cache["hostile"] = {holder: holder}
    calls.clear()
    before = sys.getrefcount(thing), sys.getrefcount(holder)
    found = words(thing)
    assert calls == []
    assert (sys.getrefcount(thing), sys.getrefcount(holder)) == before
    assert any("Hostile" in it and ".thing" in it for it in found), found


def test_locals_of_running_functions_are_left_as_they_are() -> None:
    snapshot = locals()
    thing = array()
    snapshot["extra"] = 1
    cyclescope.why_alive(thing)
    cyclescope.heap()
    assert "thing" not in snapshot or sys.version_info >= (3, 13)
    assert snapshot["extra"] == 1


def test_what_only_cyclescope_holds_is_held_from_outside() -> None:
    """Its own objects are never named, and what is in use is not called garbage for it."""
    monitor: Any = cyclescope.LeakMonitor(every=1)
    monitor.kept = [{"of": "the program"}]
    retention = cyclescope.why_alive(monitor.kept)
    (path,) = retention.paths
    assert path.root == "outside"
    assert "LeakMonitor" not in str(retention)
    monitor.stop()


def test_the_middle_of_a_long_path_is_left_out() -> None:
    class Link:
        after: Any = None

    first = last = Link()
    for _ in range(100):
        last.after = Link()
        last = last.after
    report = cyclescope.why_alive(last)
    (path,) = [it for it in report.paths if len(it.steps) > 100]
    assert f"⋮ {len(path.steps) - 40} more objects" in str(report)
    assert str(report).count("↓ .after") == 38
    assert first is not last
