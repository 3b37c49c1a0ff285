"""Does looking at a heap leave it alone? No code of the program runs, and nothing changes.

The classes here have every special method that a careless reader could call. Once the alarm is
set, each of them counts its call and raises.
"""

from __future__ import annotations

import functools
import gc
import sys
import types
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
