"""Classes with every special method that a careless reader could call, and an alarm for each call.

Once the alarm is set, each of the methods counts its call and raises.
"""

from __future__ import annotations

import functools
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import common
import cyclescope


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


def array() -> Any:
    return common.tensor("cpu", 1)


def found() -> cyclescope.CycleReport:
    """What is found with the alarm set, and rendered in every form."""
    with Alarm.set():
        report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
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
    """The leak with the longest cycle. If there are more, they hold the same memory."""
    report = found()
    leak = max(report.leaks, key=lambda leak: len(leak.cycle))
    assert len(leak.also_held_by) == len(report.leaks) - 1
    assert report.bytes_held == leak.bytes_held
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
