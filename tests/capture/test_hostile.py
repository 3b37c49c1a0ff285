"""Does looking at a heap leave it alone? No code of the program runs, and nothing changes.

The classes have every special method that a careless reader could call; see ``support.hostile``.
"""

from __future__ import annotations

import functools
import gc
import sys
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import common
import cyclescope
from support import hostile as hostile_module
from support.hostile import (
    BASES,
    Alarm,
    Node,
    array,
    hostile,
    put,
    render,
    the_leak,
    trap,
)
from support.marks import needs_torch

torch: Any = vars(common)["torch"]

pytestmark = pytest.mark.usefixtures("collector_paused")


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
            assert watch.flush(60)
    assert sum(leak.count for leak in watch.leaks) >= len(BASES) + 4
    if watch.report is not None:
        assert watch.report.bytes_held == (len(BASES) + 4) * 2**20
    if once:
        assert list(tmp_path.glob("*.html"))
    else:
        assert sum(report.bytes_held for report in reports) == (len(BASES) + 4) * 2**20
        with Alarm.set():
            render(reports[0])


@pytest.mark.parametrize("install", [sys.setprofile, sys.settrace])
def test_no_function_is_called(install: Callable[[Any], None]) -> None:
    called: list[str] = []

    def note(frame: types.FrameType, event: str, arg: object) -> None:
        # Settings are read by Python code. The program's own is in these files, and must not run.
        if event == "call" and frame.f_code.co_filename in (__file__, hostile_module.__file__):
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


@needs_torch
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
