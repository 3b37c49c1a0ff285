"""Odd objects, and what a look at them leaves behind; as in ``test_hostile``."""

from __future__ import annotations

import gc
import sys
import threading
import types
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from typing import Any

import pytest

from support.hostile import (
    Alarm,
    Node,
    array,
    found,
    hostile,
    put,
    the_leak,
)

pytestmark = pytest.mark.usefixtures("collector_paused")


def test_proxies_dead_and_alive() -> None:
    it: Any = Node()
    it.me = it
    other = Node()
    it.alive = weakref.proxy(it)
    it.dead = weakref.proxy(other)
    it.callable = weakref.proxy(print_nothing)
    it.elsewhere = [it.alive, it.dead, it]
    del it, other
    cycles = [[step.edge for step in leak.cycle] for leak in found().leaks]
    assert sorted(cycles) == [[".elsewhere", "[2]"], [".me"]]


def print_nothing() -> None: ...


def test_half_initialised() -> None:
    it: Any = Node()
    it.me = it
    kinds: list[Any] = [Node, Exception, ValueError, property, super]
    if sys.version_info < (3, 15):  # which cannot be had without a function any more
        kinds += [staticmethod, classmethod]
    kinds += [types.ModuleType, deque, defaultdict, OrderedDict, set, StopIteration]
    it.parts = [kind.__new__(kind) for kind in kinds] + [types.CellType(), it]
    for part in it.parts[:3]:
        part.it = it
    del it, part
    the_leak()


def test_deleted_dict() -> None:
    it: Any = Node()
    it.gone = Node()
    del it.gone.__dict__
    it.again = Node()
    del it.again.__dict__
    it.again.it = it
    del it
    assert {step.edge for step in the_leak().cycle} == {".it", ".again"}


def test_names_that_are_no_strings() -> None:
    names: Any = {1: 2, None: 3, (4, 5): 6}
    made: Any = type("Made", (Node,), names)
    it = made()
    vars(it)[7] = it
    del it, made
    edges = [step.edge for step in the_leak().cycle]
    assert edges in ([".7"], [".__mro__"])


NAMES = ["line\nbreak\r\x1b[31m", "x" * 2**20, "\u202eleft", "</script><b>", "quote'\"\\", ""]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
@pytest.mark.parametrize("surrogate", [False, True])
def test_odd_names(name: str, surrogate: bool) -> None:
    made: Any = type("Made", (Node,), {})
    if surrogate:
        name += "\ud800"
    made.__qualname__ = name
    made.__module__ = name
    it = made()
    vars(it)[name] = {name: it}
    del it, made
    leak = the_leak()
    assert leak.bytes_held == 2**20
    texts = [leak.summary, *(text for step in leak.cycle for text in (step.type_name, step.edge))]
    for text in texts:
        assert text.isprintable() or "\ufffd" in text, text
        assert len(text) < 2000


COUNT = 100_000


def large(kind: Any) -> None:
    it: Any = Node()
    others: list[Any] = [[] for _ in range(COUNT)]
    if kind is dict:
        it.many = dict.fromkeys(range(COUNT), it)
    elif kind is set:
        it.many = {*range(COUNT), it, *map(id, others)}
    else:
        it.many = kind([*others, it, *[it] * 1000])


@pytest.mark.parametrize("kind", [dict, list, tuple, set, deque])
def test_large_container(kind: Any) -> None:
    large(kind)
    leak = the_leak()
    assert [step.type_name for step in leak.cycle if "Node" not in step.type_name] == [
        kind.__name__ if kind is not deque else "collections.deque"
    ]


@pytest.mark.parametrize("kind", [dict, list, tuple, deque])
def test_many_references_to_one_object(kind: Any) -> None:
    """Some of them stand for all, in the report and in its cut."""
    it: Any = Node()
    it.many = dict.fromkeys(range(COUNT), it) if kind is dict else kind([it] * COUNT)
    it.also = it.many
    del it
    report = found()
    assert report.bytes_held == 2**20
    assert len(report.to_html()) < 2**18
    assert str(COUNT - 64) in report.to_json()
    for leak in report.leaks:
        assert leak.cuts
        assert all(cut.proven for cut in leak.cuts)


@pytest.mark.parametrize("made_of", [list, Node, tuple, "generator"])
def test_deep_nesting(made_of: Any) -> None:
    """A ring through 100,000 objects, and as long a chain beside it."""
    end: list[Any] = [array()]
    here: Any = end
    for _ in range(COUNT):
        if made_of is Node:
            inner, here = here, object.__new__(Node)
            put(here, "inner", inner)
        elif made_of == "generator":
            here = (lambda inner: (inner for _ in ()))(here)
        else:
            here = made_of((here,))
    end.append(here)
    del end, here, _
    if made_of is Node:
        del inner
    leak = the_leak()
    assert leak.bytes_held == 2**20
    assert leak.objects > COUNT
    assert leak.cycle_omitted > COUNT - 100


def test_metaclass_with_its_own_mro() -> None:
    class Meta(type):
        def mro(cls) -> list[type]:
            if Alarm.armed:
                Alarm.calls["mro"] += 1
            return [cls, *extra, *super().mro()[1:]]

    class Extra:
        pass

    extra: list[Any] = [Extra]

    class Made(metaclass=Meta):
        pass

    it: Any = Made()
    it.me, it.payload = it, array()
    del it, Made, Extra, Meta
    extra.clear()
    leak = the_leak()
    assert leak.bytes_held == 2**20


def test_class_body_with_a_mapping_of_its_own() -> None:
    """The frame of a class body keeps its variables in whatever ``__prepare__`` returned."""
    frames: list[Any] = []

    class Meta(type):
        @classmethod
        def __prepare__(cls, *args: Any, **kwargs: Any) -> Any:
            return hostile(dict)()

    class Made(metaclass=Meta):
        frames.append(sys._getframe())

        def method(self) -> Any:
            return super()

    frame = frames.pop()
    dict.__setitem__(frame.f_locals, "frame", frame)
    dict.__setitem__(frame.f_locals, "payload", array())
    del frame, Made, Meta
    edges = [step.edge for step in the_leak().cycle]
    assert edges[-1:] + edges[:-1] in (["['frame']", ".f_locals"], [".f_locals", "['frame']"])


def test_frame_running_in_another_thread() -> None:
    started, go_on = threading.Event(), threading.Event()
    sums: list[int] = []

    def run() -> None:
        data = array()
        frame = sys._getframe()
        mine = locals()
        started.set()
        go_on.wait(60)
        sums.append(len(data) + len(frame.f_locals) + len(mine))

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(60)
    try:
        report = found()
    finally:
        go_on.set()
        thread.join()
    assert report.leaks == []
    assert sums
    edges = [leak.cuts[0].edge for leak in found().leaks]
    if sys.version_info >= (3, 13):
        # `locals()` is a copy, which the frame does not keep (PEP 667).
        assert sorted(edges) == ["local 'frame'", "local 'mine'"]
    else:
        assert sorted(edges) == ["['frame']", "['mine']", "local 'frame'"]


# What is left behind.


def test_reference_counts_and_objects() -> None:
    shared = [1, 2]
    watched = Node()
    reference = weakref.ref(watched)

    def leak() -> None:
        it: Any = Node()
        it.me, it.shared, it.watched = it, shared, watched
        job = generator(it)
        next(job)
        it.job = job
        it.frame = sys._getframe()
        it.error = ValueError().with_traceback(None)

    def generator(it: Any) -> Iterator[int]:
        yield 1

    def state() -> tuple[int, int, int]:
        return sys.getrefcount(shared), sys.getrefcount(watched), weakref.getweakrefcount(watched)

    def objects() -> str:
        """As a string, which is no object that the collector counts."""
        return str(sorted(Counter(type(thing).__name__ for thing in gc.get_objects()).items()))

    def run() -> str:
        leak()
        assert the_leak().bytes_held == 2**20
        gc.collect()
        return objects()

    at_first = state()
    run()
    before, after = run(), run()
    assert before == after
    assert state() == at_first
    assert reference() is watched


def test_locals_that_the_program_kept() -> None:
    """A dict of locals stays as the program left it, and so keeps nothing alive."""
    kept: list[dict[str, Any]] = []

    def run() -> None:
        data = array()
        frame = sys._getframe()
        late = 1
        kept.append(locals())
        late = 2

    run()
    (variables,) = kept
    del variables["frame"], variables["data"]
    variables["added"] = 3
    before = dict(variables)
    order = list(variables)
    leak = the_leak()
    assert [step.edge for step in leak.cycle] == ["local 'frame'"]
    assert [buffer.path for buffer in leak.buffers] == [["local 'data'"]]
    assert variables == before
    assert list(variables) == order


def test_locals_of_a_live_frame_in_garbage() -> None:
    """A frame that garbage refers to but others hold too is not read at all."""
    frame = sys._getframe()
    it: Any = Node()
    it.me, it.frame = it, frame
    del it
    mine = frame.f_locals
    size = len(mine)
    the_leak()
    assert len(mine) in (size, size + 1)
    assert mine["frame"] is frame


def test_keys_among_the_modules_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a class lies is looked up in its module; a name there is the program's, and so is
    what the other modules are called."""
    compared: list[object] = []

    class Name(str):
        __slots__ = ()

        def __hash__(self) -> int:
            return hash("elsewhere")

        def __eq__(self, other: object) -> bool:
            compared.append(other)
            return False

    monkeypatch.setitem(sys.modules, Name("other"), sys)
    kind: Any = type("Elsewhere", (), {"__module__": "elsewhere"})
    it = kind()
    it.me, it.data = it, array()
    del it
    compared.clear()
    leak = the_leak()
    assert leak.cycle[0].type_name == "elsewhere.Elsewhere"
    assert not compared
