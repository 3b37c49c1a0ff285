"""Does the reported cut free the memory? Answered by making it, on CPython itself.

Each fixture leaks once and its cuts are read from the report. It leaks again, and now the named
references are found in the heap, by name alone, and removed. Then the tensors must go at once,
with no collection.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, FunctionType, TracebackType
from typing import Any
from unittest import SkipTest

import pytest

import cyclescope

sys.path.insert(0, str(Path(__file__).parent.parent / "fixtures"))

import common
from test_fixtures_are_real import Made, follow, held, made, small_heap

__all__ = ["made", "small_heap"]  # fixtures of pytest


def leaks() -> Iterator[str]:
    for name in common.names():
        try:
            if common.load(name).EXPECTED.leaks:
                yield name
        except SkipTest:  # without PyTorch: the test says so
            yield name


@pytest.fixture
def fixture(request: pytest.FixtureRequest) -> common.Fixture:
    return common.load(request.param)


@pytest.fixture(autouse=True)
def paused(small_heap: None) -> Iterator[None]:
    with common.collector_paused():
        yield


@pytest.mark.parametrize("fixture", leaks(), indirect=True)
def test_the_cut_frees(fixture: common.Fixture, made: list[Made]) -> None:
    fixture.leak("cpu")
    report = cyclescope.find_tensor_cycles(devices="any")
    (leak,) = report.leaks
    if not all(cut.proven for cut in leak.cuts):
        assert "not proven" in " ".join(str(report).split())
        return
    cuts = [(cut.owner, cut.edge) for cut in leak.cuts]
    assert held(made) == 0

    made.clear()
    gc.freeze()  # from now on gc.get_objects() has what is new
    fixture.leak("cpu")
    assert held(made) == fixture.EXPECTED.nbytes(1)
    for owner, edge in cuts:
        owners = [o for o in gc.get_objects() if is_named(o, owner) and refers(o, edge)]
        assert owners, (owner, edge)
        while owners:
            sever(owners.pop(), edge)
    assert held(made) == 0, cuts


def is_named(thing: Any, name: str) -> bool:
    """True if a report calls the object so: by its type, or as a function or class is called."""
    kind, _, rest = name.partition(" ")
    kind = kind.removesuffix(" of")
    if isinstance(thing, FunctionType):
        return kind == "function" and thing.__qualname__ == rest
    if isinstance(thing, type):
        return kind == "class" and f"{thing.__module__}.{thing.__qualname__}" == rest
    if isinstance(thing, FrameType):
        return name == f"frame of {thing.f_code.co_name}"
    suspended = any(hasattr(thing, f"{prefix}_frame") for prefix in ("gi", "cr", "ag"))
    if suspended and name == f"{type(thing).__name__} {thing.__qualname__}":
        return True
    own = type(thing)
    return name in (own.__qualname__, f"{own.__module__}.{own.__qualname__}")


def refers(owner: Any, edge: str) -> bool:
    """True if ``owner`` has a reference of this name; the keys of hooks are numbers that go up."""
    return bool(owner) if is_registry(owner, edge) else bool(follow(owner, edge))


def is_registry(owner: Any, edge: str) -> bool:
    return isinstance(owner, dict) and edge[1:-1].isdigit()


def sever(owner: Any, edge: str) -> None:
    """Removes the reference that a report calls ``edge``."""
    kind, _, name = edge.partition(" '")
    name = name.removesuffix("'")
    if edge == "element" or is_registry(owner, edge):
        owner.clear()
    elif edge.startswith("['"):
        del owner[edge[2:-2]]
    elif edge.startswith("["):
        owner[int(edge[1:-1])] = None
    elif edge.startswith(".__") and isinstance(owner, BaseException):
        setattr(owner, edge[1:], None)
    elif edge == ".tb_next" and isinstance(owner, TracebackType):
        owner.tb_next = None
    elif edge.startswith("."):
        remove_attribute(owner, edge[1:])
    elif kind == "local":
        frames = (getattr(owner, f"{prefix}_frame", None) for prefix in ("gi", "cr", "ag"))
        frame = owner if isinstance(owner, FrameType) else next(filter(None, frames))
        if sys.version_info >= (3, 13):
            frame.f_locals[name] = None
        else:
            copy = frame.f_locals  # which `follow` asked for and the frame keeps
            frame.clear()
            copy.clear()
            del frame  # whose f_back may be this frame
    elif kind == "closure variable":
        del owner.__closure__[owner.__code__.co_freevars.index(name)].cell_contents
    elif kind == "default argument":
        owner.__defaults__ = None
    else:
        raise AssertionError(f"nobody can remove {edge!r} of {type(owner).__qualname__}")


def remove_attribute(owner: Any, name: str) -> None:
    """Deletes an attribute where it is stored, past any ``__delattr__`` of the program's own."""
    stored = getattr(owner, "__dict__", {})
    if isinstance(owner, type):
        delattr(owner, name)
    elif name in stored:
        del stored[name]
    else:
        object.__delattr__(owner, name)
