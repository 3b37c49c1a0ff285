"""What holds some objects in common, and its name."""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from inspect import CO_OPTIMIZED
from types import CellType, FrameType, FunctionType, ModuleType
from typing import Any, cast

from cyclescope._live.objects import is_one_of, module_of, name_of_class
from cyclescope._live.reading import Census, LiveTensor, attributes_of
from cyclescope._live.redaction import shown_name

MAX_LEVELS = 4
MAX_WIDTH = 64
"""Looking up what refers to objects takes time in proportion to how many they are."""

MOST = 0.8


@dataclass(frozen=True, slots=True)
class Held:
    """What holds some objects."""

    members: list[int]
    """Which of them, by index, some Python object holds; the rest only C++ does."""
    holder: Any | None
    """The nearest object that holds most of these, directly or through others; if there is one."""


def what_holds(objects: list[Any], ignore: Iterable[object] = ()) -> Held:
    """Who holds ``objects``, in up to :data:`MAX_LEVELS` passes over the heap.

    Args:
        objects: A few objects: the passes take longer the more there are.
        ignore: The caller's own objects that refer to them.
    """
    own = {id(objects), *map(id, ignore)}
    reaching: dict[int, tuple[Any, set[int]]] = {
        id(each): (each, {index}) for index, each in enumerate(objects)
    }
    seen = set(reaching)
    members: set[int] = set()
    for level in range(MAX_LEVELS):
        # A tuple, as a call makes one of anything else, which would be found as a referrer.
        frontier = tuple(each for each, _ in list(reaching.values())[:MAX_WIDTH])
        above: dict[int, tuple[Any, set[int]]] = {}
        referrers = gc.get_referrers(*frontier)
        own |= {id(frontier), id(reaching), id(above), id(referrers)}
        for referrer in referrers:
            if id(referrer) in own or id(referrer) in seen or is_ours(referrer):
                continue
            indices: set[int] = set()
            for held in gc.get_referents(referrer):
                if id(held) in reaching:
                    indices |= reaching[id(held)][1]
            above[id(referrer)] = referrer, indices
        if level == 0:
            # Locals of running functions are in no object that the collector knows.
            local = {id(value) for _, value, _ in all_locals()}
            members = {i for i, each in enumerate(objects) if id(each) in local}
            members.update(*(indices for _, indices in above.values()))
        for holder, indices in sorted(above.values(), key=lambda each: -len(each[1])):
            if is_one_of(type(holder), NO_HOLDERS):
                continue
            if len(indices) >= max(2, MOST * len(members)):
                return Held(sorted(members), holder)
        seen |= set(above)
        reaching = {
            each: found for each, found in above.items() if type(found[0]) is not ModuleType
        }
        if not reaching:
            break
    return Held(sorted(members), None)


NO_HOLDERS = (FrameType, ModuleType, type)
"""Types of objects that are never what a program keeps things in."""

NAMELESS = (list, tuple, set, frozenset, deque, *NO_HOLDERS)
"""Types of objects that have no attributes to name what they hold by."""


def containers_of(held: object) -> list[Any]:
    """The lists, dicts and their like that refer to an object."""
    return [
        each
        for each in gc.get_referrers(held)
        if is_one_of(type(each), (list, tuple, set, deque)) or issubclass(type(each), dict)
    ]


def is_ours(referrer: object) -> bool:
    """True for what is cyclescope's own."""
    kind = type(referrer)
    if is_one_of(kind, (LiveTensor, Census, Held)):
        return True
    if kind is list:
        return bool(referrer) and type(referrer[0]) is LiveTensor  # type: ignore[index]
    # The working memory of this module.
    return kind is tuple and any(type(each) is set for each in referrer)  # type: ignore[attr-defined]


def name_of(holder: Any) -> str:
    """Where a program has it: ``train.history``, ``local 'losses' in fit``; else its type."""
    return _name(holder, depth=2) or type_name(holder)


def type_name(each: object) -> str:
    """The name of its type, as reports have it."""
    return shown_name(name_of_class(type(each)))


def _name(held: Any, depth: int) -> str | None:
    local = _local_name(held)
    if local is not None:
        return local
    referrers = [each for each in gc.get_referrers(held) if not is_ours(each)]
    for referrer in referrers:
        named = _name_in(referrer, held)
        if named is not None:
            return named
    for container in referrers:
        if depth and is_one_of(type(container), (list, tuple, dict, deque)):
            named = _name(container, depth - 1)
            if named is not None:
                return f"{named}[…]"
    return None


def _name_in(referrer: object, holder: object) -> str | None:
    kind = type(referrer)
    if kind is dict:
        names_ = cast("dict[object, object]", referrer)
        names = [key for key, value in list(names_.items()) if value is holder]
        if not names or type(names[0]) is not str:
            return None
        module = names_.get("__name__") if "__builtins__" in names_ else None
        if type(module) is str:
            return f"{shown_name(module)}.{shown_name(names[0])}"
        owner = _owner_of_dict(referrer)
        return None if owner is None else f"{type_name(owner)}.{shown_name(names[0])}"
    if kind is CellType:
        return _closure_name(referrer)
    if not is_one_of(kind, NAMELESS):
        found = [name for name, value in attributes_of(referrer).items() if value is holder]
        if found:
            return f"{type_name(referrer)}.{shown_name(found[0])}"
    return None


def _owner_of_dict(names: object) -> object | None:
    referrers: list[object] = gc.get_referrers(names)
    for referrer in referrers:
        if attributes_of(referrer) is names:
            return referrer
    return None


def _closure_name(cell: object) -> str | None:
    for closure in gc.get_referrers(cell):
        if type(closure) is not tuple:
            continue
        for function in gc.get_referrers(closure):
            if type(function) is FunctionType and function.__closure__ is closure:
                free = function.__code__.co_freevars
                at = [i for i, each in enumerate(closure) if each is cell]
                function_name = shown_name(function.__qualname__)
                return f"closure variable '{shown_name(free[at[0]])}' of {function_name}"
    return None


def _local_name(holder: object) -> str | None:
    """The local variable of a running function, of any thread."""
    for name, value, frame in all_locals():
        if value is holder:
            if frame.f_code.co_name == "<module>":
                return f"{shown_name(module_of(frame) or '?')}.{shown_name(name)}"
            return f"local '{shown_name(name)}' in {code_name(frame)}"
    return None


def all_locals() -> list[tuple[str, Any, FrameType]]:
    """Name, value and frame of the variables of all running functions, cyclescope's own aside."""
    found: list[tuple[str, Any, FrameType]] = []
    tops = list(sys._current_frames().values())
    frame: FrameType | None = None
    try:
        while tops:
            frame = tops.pop()
            while frame is not None:
                if not module_of(frame).startswith("cyclescope."):
                    found += [(name, value, frame) for name, value in locals_of(frame)]
                frame = frame.f_back
    finally:
        # One of them is this function's: with a reference to itself it would be garbage in a cycle.
        del frame, tops
    return found


def locals_of(frame: FrameType) -> list[tuple[str, Any]]:
    """The local variables; none where the program has put a mapping of its own in their place.

    Until Python 3.12, ``f_locals`` of a function is a dict that the frame keeps, and with it all
    that the variables referred to: it is emptied again, unless the program has it too.
    """
    found = frame.f_locals
    if type(found) is not dict:
        return list(found.items()) if name_of_class(type(found)) == "FrameLocalsProxy" else []
    variables = list(found.items())
    # The frame, `found`, and the argument of `getrefcount` itself.
    if frame.f_code.co_flags & CO_OPTIMIZED and sys.getrefcount(found) <= 3:
        found.clear()
    return variables


def code_name(frame: FrameType) -> str:
    """The function of a frame: ``train_step (train.py:88)``."""
    from os.path import basename

    code = frame.f_code
    name = getattr(code, "co_qualname", code.co_name)
    return f"{shown_name(name)} ({basename(code.co_filename)}:{frame.f_lineno})"
