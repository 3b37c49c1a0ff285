"""Does looking at a heap leave it alone? No code of the program runs, and nothing changes.

The classes here have every special method that a careless reader could call. Once the alarm is
set, each of them counts its call and raises.
"""

from __future__ import annotations

import functools
import gc
import sys
import threading
import types
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

import cyclescope

sys.path.insert(0, str(Path(__file__).parent.parent / "fixtures"))

import common

torch: Any = vars(common)["torch"]


class Alarm(Exception):
    armed: ClassVar[bool] = False
    calls: ClassVar[Counter[str]] = Counter()

    @classmethod
    @contextmanager
    def set(cls) -> Iterator[None]:
        cls.calls.clear()
        cls.armed = True
        try:
            yield
        finally:
            cls.armed = False
        assert not cls.calls, f"code of the program ran: {dict(cls.calls)}"


METHODS = """
    __repr__ __str__ __bytes__ __format__ __hash__ __bool__ __sizeof__ __dir__ __call__
    __fspath__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __getattribute__ __getattr__
    __setattr__ __delattr__ __len__ __length_hint__ __iter__ __next__ __reversed__ __contains__
    __getitem__ __setitem__ __delitem__ __missing__ __index__ __int__ __float__ __complex__
    __add__ __radd__ __mul__ __mod__ __or__ __and__ __round__ __enter__ __exit__ __await__
    __aiter__ __anext__ __copy__ __deepcopy__ __reduce__ __reduce_ex__ __getstate__
    __getnewargs__ __instancecheck__ __subclasscheck__ __get__ __set__ __delete__ __buffer__
    __array__ __array_function__ __array_ufunc__ __array_finalize__ __dlpack__ __dlpack_device__
    __torch_function__ __torch_dispatch__
"""
PROPERTIES = """
    __class__ __dict__ __array_interface__ __array_struct__ __cuda_array_interface__ __wrapped__
    __doc__ __closure__ __code__ __func__ __self__ __traceback__ data device untyped_storage
    data_ptr is_cuda shape dtype _backward_hooks grad grad_fn
"""
META_PROPERTIES = "__module__ __name__ __mro__ __bases__ __base__"


def trap(name: str, otherwise: Any) -> Any:
    def method(*args: Any, **kwargs: Any) -> Any:
        if Alarm.armed:
            Alarm.calls[name] += 1
            raise Alarm(name)
        if otherwise is None:
            raise TypeError(name)
        return otherwise(*args, **kwargs)

    return method


def missing(mapping: object, key: object) -> Any:
    raise KeyError(key)


def traps(base: type) -> dict[str, Any]:
    """A class body with a trap for every special method and property."""
    body: dict[str, Any] = {name: trap(name, getattr(base, name, None)) for name in METHODS.split()}
    body["__hash__"] = trap("__hash__", object.__hash__)
    body["__eq__"] = trap("__eq__", lambda a, b: a is b)
    body["__torch_function__"] = classmethod(body["__torch_function__"])
    body |= {name: property(trap(name, None)) for name in PROPERTIES.split()}
    body["__class__"] = property(trap("__class__", type))
    body["__missing__"] = trap("__missing__", missing)
    return body


def meta_traps() -> dict[str, Any]:
    body = traps(type)
    for name in ("__dict__", "__doc__"):
        del body[name]
    for name in META_PROPERTIES.split():
        of_type = vars(type)[name]
        body[name] = property(trap(f"meta {name}", of_type.__get__), of_type.__set__)
    body["mro"] = trap("mro", type.mro)
    return body


HostileMeta: Any = type("HostileMeta", (type,), meta_traps())


def hostile(base: type) -> Any:
    return HostileMeta(f"Hostile{base.__name__}", (base,), traps(base))


@pytest.fixture(scope="module", autouse=True)
def small_heap() -> Iterator[None]:
    """Leave what PyTorch brought out of every look at the heap: it has nothing to do with this."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def paused(small_heap: None) -> Iterator[None]:
    with common.collector_paused():
        yield


def array() -> Any:
    return common.tensor("cpu", 1)


def found() -> cyclescope.CycleReport:
    """What is found with the alarm set, and rendered in every form."""
    with Alarm.set():
        report = cyclescope.find_tensor_cycles(devices="any")
        render(report)
    return report


def render(report: cyclescope.CycleReport) -> None:
    assert str(report)
    assert repr(report)
    assert report.to_html()
    assert report.to_dot()
    assert report.to_svg()
    assert report.to_json()


def the_leak() -> cyclescope.Leak:
    (leak,) = found().leaks
    return leak


class Node:
    """An object of no harm."""

    def __init__(self) -> None:
        self.payload: Any = array()


def put(owner: Any, name: str, value: Any) -> None:
    object.__setattr__(owner, name, value)


BASES: list[type] = [
    object,
    dict,
    OrderedDict,
    defaultdict,
    list,
    tuple,
    set,
    frozenset,
    deque,
    str,
    bytes,
    int,
    float,
    Exception,
    functools.partial,
    types.ModuleType,
    property,
]


def instance(base: type) -> Any:
    made = hostile(base)
    if base is functools.partial:
        return functools.partial.__new__(made, print)
    new: Any = base.__new__
    it = new(made)
    if base is types.ModuleType:
        types.ModuleType.__init__(it, "hostile")
    return it


def leak_through_attribute(base: type) -> None:
    it = instance(base)
    put(it, "me", it)
    put(it, "payload", array())


def leak_through_items(base: type) -> None:
    """Hostile objects as items, keys and values of a container that is hostile itself."""
    it = instance(base)
    put(it, "payload", array())
    keys = [instance(kind) for kind in (object, str, int, tuple, frozenset, bytes, float)]
    if issubclass(base, dict):
        for key in keys:
            dict.__setitem__(it, key, it)
        return
    for key in [it, *keys]:
        vars(base)["add" if issubclass(base, set) else "append"](it, key)


@pytest.mark.parametrize("base", BASES)
def test_attributes(base: type) -> None:
    leak_through_attribute(base)
    leak = the_leak()
    assert [step.edge for step in leak.cycle] == [".me"]
    assert leak.cycle[0].type_name.endswith(f"Hostile{base.__name__}")
    assert [buffer.path for buffer in leak.buffers] == [[".payload"]]


@pytest.mark.parametrize("base", [dict, OrderedDict, defaultdict, list, set, deque])
def test_items(base: type) -> None:
    leak_through_items(base)
    leak = the_leak()
    assert [buffer.path for buffer in leak.buffers] == [[".payload"]]
    (step,) = leak.cycle
    assert step.edge == "an element" if base is set else step.edge.startswith("[")


def test_hostile_class_made_at_run_time() -> None:
    made = hostile(object)
    type.__setattr__(made, "payload", array())
    del made
    assert the_leak().cycle[0].edge == ".__mro__"


def test_hostile_descriptors_and_slots() -> None:
    descriptor = instance(object)
    body = {"__slots__": ("me", "payload", "__weakref__"), "descriptor": descriptor}
    made: Any = type("Slotted", (), body)
    it = made()
    it.me, it.payload = it, array()
    del it, made, body, descriptor
    assert [step.edge for step in the_leak().cycle] == [".me"]


def test_key_with_the_hash_of_a_name_that_the_reader_wants() -> None:
    names = ["__module__", "__qualname__", "__dict__", "_fields", "__name__", "me", "payload"]

    class Colliding(str):
        def __hash__(self) -> int:
            return hash(str(self)[1:])

        def __eq__(self, other: object) -> bool:
            if Alarm.armed:
                Alarm.calls["__eq__"] += 1
            return self is other

    body: dict[Any, Any] = {Colliding("x" + name): 1 for name in names}
    made: Any = type("Made", (Node,), {"__module__": "somewhere"} | body)
    it = made()
    vars(it).update(body)
    it.me = it
    del it, made, body
    leak = the_leak()
    assert "somewhere.Made" in {step.type_name for step in leak.cycle}


@pytest.mark.parametrize("once", [True, False])
def test_watches(once: bool, tmp_path: Path) -> None:
    reports: list[cyclescope.CycleReport] = []
    if once:
        watch = cyclescope.warn_tensor_cycles(devices="any", report_dir=tmp_path)
    else:
        watch = cyclescope.observe_tensor_cycles(reports.append, devices="any")
    with watch:
        for base in BASES:
            leak_through_attribute(base)
        for base in (dict, list, set, deque):
            leak_through_items(base)
        with Alarm.set():
            gc.collect()
            assert watch.flush()
    assert sum(leak.count for leak in watch.leaks) == len(BASES) + 4
    if once:
        assert list(tmp_path.glob("*.html"))
    else:
        with Alarm.set():
            render(reports[0])


@pytest.mark.parametrize("install", [sys.setprofile, sys.settrace])
def test_no_function_is_called(install: Callable[[Any], None]) -> None:
    called: list[str] = []

    def note(frame: types.FrameType, event: str, arg: object) -> None:
        # Settings are read by Python code; the code of the program, which must not run, is here.
        if event == "call" and frame.f_code.co_filename == __file__:
            called.append(frame.f_code.co_name)

    for base in BASES:
        leak_through_attribute(base)
    previous = sys.gettrace() if install is sys.settrace else sys.getprofile()
    install(note)
    try:
        report = cyclescope.find_tensor_cycles(devices="any")
    finally:
        install(previous)
    assert len(report.leaks) == len(BASES)
    assert called == []


@pytest.mark.skipif(torch is None, reason="is about PyTorch, which is not installed")
@pytest.mark.parametrize("how", ["as_subclass", "wrapper"])
def test_tensor_subclass(how: str) -> None:
    class Loud(torch.Tensor):  # type: ignore[misc]
        __torch_function__: Any = classmethod(
            trap("__torch_function__", torch._C._disabled_torch_function_impl)
        )
        __torch_dispatch__: Any = classmethod(trap("__torch_dispatch__", None))
        __repr__ = trap("__repr__", None)
        __len__ = trap("__len__", None)

    if how == "as_subclass":
        it = torch.Tensor._make_subclass(Loud, array())
    else:
        it = torch.Tensor._make_wrapper_subclass(Loud, (2**18,))
        it.inner = array()
    it.me = it
    del it, Loud
    leak = the_leak()
    assert leak.bytes_held == 2**20


# Odd objects.


def test_proxies_dead_and_alive() -> None:
    it: Any = Node()
    it.me = it
    other = Node()
    it.alive = weakref.proxy(it)
    it.dead = weakref.proxy(other)
    it.callable = weakref.proxy(print_nothing)
    it.elsewhere = [it.alive, it.dead, it]
    del it, other
    leak = the_leak()
    assert [step.edge for step in leak.cycle] == [".me"]


def print_nothing() -> None: ...


def test_half_initialised() -> None:
    it: Any = Node()
    it.me = it
    kinds: list[Any] = [Node, Exception, ValueError, property, super, staticmethod, classmethod]
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
    assert len(found().leaks) == 1


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
