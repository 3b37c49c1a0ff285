"""Finds objects in the running heap by the names that a report uses, and removes references so.

Nothing here asks cyclescope: ``gc`` and the objects' own attributes have to agree with it.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterable, Iterator
from types import (
    AsyncGeneratorType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    TracebackType,
)
from typing import Any


def chains(cycle: tuple[tuple[str, str], ...]) -> Iterator[list[Any]]:
    """Every list of objects in the heap whose types and references are those of the cycle."""
    names = [name for name, _ in cycle]
    edges = [edge for _, edge in cycle]
    for first in gc.get_objects():
        if not is_a(first, names[0]):
            continue
        begun = [[first]]
        for name, edge in zip(names[1:], edges[:-1], strict=True):
            begun = [[*c, o] for c in begun for o in follow(c[-1], edge) if is_a(o, name)]
        for chain in begun:
            if any(last is first for last in follow(chain[-1], edges[-1])):
                yield chain


def tensors_behind(chain: list[Any], path: tuple[str, ...]) -> Iterator[Any]:
    """The tensors at the end of ``path``, from whichever step it starts."""
    for step in chain:
        ends = [step]
        for edge in path:
            ends = [end for owner in ends for end in follow(owner, edge)]
        for end in ends:
            if any(is_a(end, name) for name in ("torch.Tensor", "Parameter", "numpy.ndarray")):
                yield end


def is_a(thing: object, name: str) -> bool:
    return name in f"{type(thing).__module__}.{type(thing).__qualname__}"


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
    if suspended_frames(thing) and name == f"{type(thing).__name__} {thing.__qualname__}":
        return True
    own = type(thing)
    return name in (own.__qualname__, f"{own.__module__}.{own.__qualname__}")


def suspended_frames(thing: Any) -> list[Any]:
    """The frame of a generator, coroutine or async generator; None in the list once it is done."""
    kinds = {GeneratorType: "gi_frame", CoroutineType: "cr_frame", AsyncGeneratorType: "ag_frame"}
    return [getattr(thing, frame) for kind, frame in kinds.items() if type(thing) is kind]


def follow(owner: Any, edge: str) -> Iterable[Any]:
    """The objects that ``owner`` refers to by the name ``edge``."""
    kind, _, name = edge.partition(" '")
    name = name.removesuffix("'")
    if edge == "an internal reference":
        return gc.get_referents(owner)
    if edge == "element":
        return list(owner) if isinstance(owner, set) else []
    if edge == "[":
        return list(owner.values()) if isinstance(owner, dict) else []
    if edge.startswith("['"):
        return [owner[edge[2:-2]]] if isinstance(owner, dict) and edge[2:-2] in owner else []
    if edge.startswith("["):
        index = int(edge[1:-1])
        sequence = isinstance(owner, tuple) or hasattr(owner, "append")
        return [owner[index]] if sequence and len(owner) > index else []
    if edge == "._initializer" and hasattr(owner, "_create_worker_context"):
        # From 3.14 on an executor keeps it in a function, which is told as the attribute of before.
        return follow(owner._create_worker_context, "closure variable 'initializer'")
    if edge.startswith("."):
        value = getattr(owner, edge[1:], None)
        return value if isinstance(value, tuple) else [value]
    if kind == "local":
        frames = [owner] if isinstance(owner, FrameType) else suspended_frames(owner)
        return [frame.f_locals[name] for frame in frames if frame and name in frame.f_locals]
    if not isinstance(owner, FunctionType):
        return []
    code = owner.__code__
    if kind == "closure variable" and name in code.co_freevars and owner.__closure__:
        return [owner.__closure__[code.co_freevars.index(name)].cell_contents]
    if kind == "default argument" and owner.__defaults__:
        names = code.co_varnames[: code.co_argcount]
        return [d for n, d in zip(names[::-1], owner.__defaults__[::-1], strict=False) if n == name]
    return []


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
        frame = owner if isinstance(owner, FrameType) else suspended_frames(owner)[0]
        if sys.version_info >= (3, 14):
            empty_slot(owner, frame, name)
        elif sys.version_info >= (3, 13):
            frame.f_locals[name] = None
        else:
            copy = frame.f_locals  # which `follow` asked for and the frame keeps
            copy[name] = None
            ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
            copy.clear()
            del frame  # whose f_back may be this frame
    elif kind == "closure variable":
        del owner.__closure__[owner.__code__.co_freevars.index(name)].cell_contents
    elif kind == "default argument":
        owner.__defaults__ = None
    else:
        raise AssertionError(f"nobody can remove {edge!r} of {type(owner).__qualname__}")


def empty_slot(owner: Any, frame: FrameType, name: str) -> None:
    """Takes a variable out of a frame. From 3.14 on, the frame keeps what `f_locals` overwrites."""
    value = id(frame.f_locals[name])
    empty, tag = 1, 3  # `PyStackRef_NULL` and `Py_TAG_BITS` in Include/internal/pycore_stackref.h
    size = owner.__sizeof__() // ctypes.sizeof(ctypes.c_size_t)
    words = (ctypes.c_size_t * size).from_address(id(owner))
    places = [number for number in range(size) if words[number] & ~tag == value]
    if not places:
        frame.f_locals[name] = None  # it is in a cell
        return
    is_counted = words[places[-1]] & tag == 0
    words[places[-1]] = empty
    if is_counted:
        ctypes.pythonapi.Py_DecRef(ctypes.c_void_p(value))


def remove_attribute(owner: Any, name: str) -> None:
    """Deletes an attribute where it is stored, past any ``__delattr__`` of the program's own."""
    stored = getattr(owner, "__dict__", {})
    if isinstance(owner, type):
        delattr(owner, name)
    elif name in stored:
        del stored[name]
    else:
        object.__delattr__(owner, name)
