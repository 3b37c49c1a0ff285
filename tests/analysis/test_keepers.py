"""What is named as the owner of an object or of memory is deleted, and what is freed is measured.

``TEST_CASES`` says how many random programs are tried (default: 40 of each kind).
"""

from __future__ import annotations

import contextvars
import copyreg
import ctypes
import dataclasses
import gc
import os
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

import cyclescope
from support.marks import needs_torch

CASES = int(os.environ.get("TEST_CASES", "40"))
TESTS = Path(__file__).parents[1]
kept: dict[str, Any] = {}


class Kept:
    jobs: list[Any]


def judged(program: str, *arguments: str, cases: int = CASES) -> int:
    """What a program of ``support`` prints, in a process of its own."""
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        f"support.{program}",
        "0",
        str(cases),
        *arguments,
    ]
    path = os.pathsep.join([str(TESTS), *filter(None, sys.path)])
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    return int(done.stdout)


def test_deleting_what_is_named_frees_the_object_and_nothing_less_does() -> None:
    # The programs are such that several are needed in many of them.
    assert judged("random_owners") > CASES // 5


def test_deleting_the_variable_of_a_row_frees_what_the_row_says() -> None:
    assert judged("random_heaps") > CASES // 2


@needs_torch
def test_deleting_the_variable_of_a_row_with_tensors_and_graphs() -> None:
    cases = CASES // 10 or 1
    assert judged("random_heaps", "torch", cases=cases) > cases // 2


# What no variable of the program leads to.


class Thing:
    """Can be referred to weakly."""


def keepers_of(seen: weakref.ref[Any]) -> list[str]:
    report = cyclescope.why_alive(seen())
    assert report.is_enough, str(report)
    return [keeper.words for keeper in report.keepers if not keeper.goes_by_itself]


def test_a_context_variable_is_named() -> None:
    variable: contextvars.ContextVar[Any] = contextvars.ContextVar("current_batch")
    token = variable.set([Thing()])
    seen = weakref.ref(variable.get()[0])
    (words,) = keepers_of(seen)
    assert "context variable 'current_batch'" in words
    variable.reset(token)
    del token
    assert seen() is None


def test_a_pending_timer_is_one_keeper() -> None:
    thing = Thing()
    seen = weakref.ref(thing)
    timer = threading.Timer(600, print, [thing])
    timer.start()
    del thing
    try:
        (words,) = keepers_of(seen)
        assert words == f"pending timer `{timer.name}` → .args (list, 1 item) → [0]"
    finally:
        timer.cancel()
        timer.join()
    timer.args = []
    assert seen() is None


def in_a_notebook(monkeypatch: pytest.MonkeyPatch, names: Callable[[Thing], dict[str, Any]]) -> Any:
    """What keeps an object that has names in a notebook."""
    thing = Thing()
    seen = weakref.ref(thing)
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    for name, value in {"get_ipython": print, **names(thing)}.items():
        monkeypatch.setattr(sys.modules["__main__"], name, value, raising=False)
    value = None
    del thing
    return keepers_of(seen)


def test_the_results_of_cells_are_the_history_of_the_notebook(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = in_a_notebook(monkeypatch, lambda it: {"Out": {3: it}, "_3": it, "_": it})
    # What `monkeypatch` keeps is not asked about.
    history = sorted(it for it in words if it.startswith("the notebook's history"))
    assert len(history) == 3, words
    assert any("Out" in it and "[3]" in it for it in history), words


def test_a_variable_of_the_notebook_is_none_of_its_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = in_a_notebook(monkeypatch, lambda it: {"_": it, "mine": it, "_4": it})
    named = [it for it in words if it.endswith((".mine", "`mine`"))]
    assert named == ["module `__main__` → `mine`"], words
    assert sum(it.startswith("the notebook's history") for it in words) == 2, words


@needs_torch
def test_a_tensor_on_the_memory_of_an_array_keeps_the_array() -> None:
    import torch

    array = numpy.zeros(1 << 12)
    seen = weakref.ref(array)
    held = {"tensor": torch.from_numpy(array)}
    del array
    report = cyclescope.why_alive(seen())
    assert any("local `held`" in it.words and "['tensor']" in it.words for it in report.keepers)
    held.clear()
    assert seen() is None


@needs_torch
def test_the_parameters_of_an_optimizer_without_its_model_are_parameters() -> None:
    import torch

    optimizer = torch.optim.SGD(torch.nn.Linear(64, 64).parameters())
    pointer = optimizer.param_groups[0]["params"][0].data_ptr()
    categories = {it.pointer: it.category for it in cyclescope.heap().buffers}
    assert categories[pointer] == "parameter"


def test_frozen_objects_without_a_cycle_are_freed_at_once() -> None:
    held = {"thing": Thing()}
    cycle = {"thing": Thing()}
    vars(cycle["thing"])["me"] = cycle["thing"]
    gc.collect()
    gc.freeze()
    try:
        assert cyclescope.why_alive(held["thing"]).is_enough
        assert not cyclescope.why_alive(cycle["thing"]).is_enough
        for owner in (held, cycle):
            seen = weakref.ref(owner["thing"])
            owner.clear()
            gc.collect()
            assert (seen() is None) == (owner is held)
        # Not within the assertion, whose parts pytest keeps.
        report = cyclescope.why_alive(seen())
        assert report.is_uncollectable, str(report)
    finally:
        gc.unfreeze()


# What is not to be removed, as that does harm or nothing.


def words_of(seen: weakref.ref[Any]) -> str:
    (words,) = keepers_of(seen)
    return words


def test_the_memory_that_a_ctypes_pointer_needs_is_not_to_be_removed() -> None:
    class Boxed(ctypes.Structure):
        _fields_ = [("it", ctypes.py_object)]

    held = [Boxed(Thing())]
    seen = weakref.ref(held[0].it)
    assert words_of(seen).endswith("(list, 1 item) → [0]")
    del held[0]
    assert seen() is None


def test_the_memory_that_a_strided_array_needs_is_not_to_be_removed() -> None:
    array = numpy.ones(5000)
    seen = weakref.ref(array)
    held = [numpy.lib.stride_tricks.as_strided(array, (10,), (8,))]
    del array
    assert words_of(seen).endswith("(list, 1 item) → [0]")
    assert "The memory stays" not in str(cyclescope.why_alive(seen()))
    del held[0]
    assert seen() is None


@pytest.mark.parametrize("form", ["plain", "slots", "its dict was read"])
def test_an_attribute_of_a_frozen_object_is_not_to_be_removed(form: str) -> None:
    kind = dataclasses.make_dataclass("Kept", ["thing"], frozen=True, slots=form == "slots")
    held = [kind(Thing())]
    if form == "its dict was read":
        assert vars(held[0])
    seen = weakref.ref(held[0].thing)
    assert words_of(seen).endswith("(list, 1 item) → [0]")
    del held[0]
    assert seen() is None


def test_objects_keep_their_class() -> None:
    held = {"one": type("Made", (), {"__slots__": ("it",)})(), "other": 1}
    seen = weakref.ref(type(held["one"]))
    report = cyclescope.why_alive(seen())
    assert report.to_text().startswith(f"class {__name__}.Made: kept alive by 1 reference.")
    assert [keeper.words.split(" → ")[-1] for keeper in report.keepers] == ["['one']"]
    assert report.by_collection
    held.clear()
    gc.collect()
    assert seen() is None


def test_a_class_keeps_its_metaclass() -> None:
    held = [type("Meta", (type,), {})("Made", (), {})]
    seen = weakref.ref(type(held[0]))
    report = cyclescope.why_alive(seen())
    assert [keeper.words.split(" → ")[-1] for keeper in report.keepers] == ["[0]"]
    held.clear()
    gc.collect()
    assert seen() is None


def test_a_class_that_an_object_of_another_class_has_is_not_garbage() -> None:
    kind = type("Made", (), {"method": lambda self: self})
    held = [kind()]
    seen = weakref.ref(kind)
    del kind
    report = cyclescope.why_alive(vars(seen())["method"])
    assert "garbage" not in report.to_text().split("\n")[0]
    del held


def test_many_holders_of_an_object_are_all_known() -> None:
    thing = Thing()
    held = [[thing] for _ in range(5000)]
    seen = weakref.ref(thing)
    del thing
    report = cyclescope.why_alive(seen())
    assert report.is_enough
    del held


def test_an_item_of_an_array_of_objects_can_be_removed() -> None:
    held = numpy.array([Thing(), None], dtype=object)
    view = held[:1]
    seen = weakref.ref(held[0])
    words = keepers_of(seen)
    assert all("[0]" in it for it in words), words
    held[0] = None
    assert seen() is None
    assert view[0] is None


def test_each_variable_of_a_call_is_a_reference() -> None:
    class Buffer: ...

    first = Buffer()
    second = first
    kept = [first]
    report = cyclescope.why_alive(first)
    words = {path.words.split(" in ")[0] for path in report.paths}
    assert words == {"local `first`", "local `second`", "local `kept`"}
    assert "2 local variables of running functions" in " ".join(report.to_text().split())
    assert (second, kept) == (first, [first])


def test_memory_of_two_variables_stays_without_one() -> None:
    size = 1_234_567  # of no other array here
    first = numpy.zeros(size, dtype=numpy.uint8)
    second = first
    (buffer,) = (it for it in cyclescope.heap().buffers if it.bytes == size)
    assert not buffer.alone
    del second
    (buffer,) = (it for it in cyclescope.heap().buffers if it.bytes == size)
    assert buffer.alone
    assert first.any() == 0


def test_what_the_c_code_of_a_module_has_is_none_of_its_attributes() -> None:
    class Session: ...

    class Buffer: ...

    def reduce(_: Session, scratch: Buffer = Buffer()) -> tuple[type, tuple[()]]:  # noqa: B008
        return Session, ()

    copyreg.pickle(Session, reduce)
    scratch = weakref.ref(reduce.__defaults__[0])  # type: ignore[index]
    del reduce
    try:
        report = cyclescope.why_alive(scratch())
    finally:
        del copyreg.dispatch_table[Session]
    words = [path.words for path in report.paths if path.root != "local"]
    assert "→ `dispatch_table` (" in report.keepers[0].words
    assert "→ `dispatch_table` (" in words[0]
    assert not any("module `_pickle` → `" in each for each in words)


def test_a_tuple_with_names_that_c_made_keeps_what_it_has() -> None:
    class Buffer: ...

    class Pool:
        def __init__(self) -> None:
            self.buffer = Buffer()

        def __del__(self) -> None:
            raise RuntimeError

    reports: list[Any] = []
    before = sys.unraisablehook
    sys.unraisablehook = reports.append
    try:
        pool = Pool()
        buffer = weakref.ref(pool.buffer)
        del pool
    finally:
        sys.unraisablehook = before
    (keeper,) = cyclescope.why_alive(buffer()).keepers
    assert "local `reports` in " in keeper.words
    reports.clear()
    assert buffer() is None


def test_a_reference_is_named_as_on_the_first_path() -> None:
    class Job:
        def __init__(self) -> None:
            self.out = numpy.ones(9)

        def done(self) -> None: ...

    job = Job()
    kept["done"] = [job.done]
    Kept.jobs = [job]
    del job
    retention = cyclescope.why_alive(Kept.jobs[0].out)
    (keeper,) = retention.keepers
    assert len(retention.paths) == 2
    assert retention.paths[0].words.startswith(keeper.words), str(retention)
    Kept.jobs.clear()
    kept.clear()
