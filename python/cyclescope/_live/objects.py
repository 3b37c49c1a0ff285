"""Facts of the program's classes and frames, read without running any of its code.

A class may have a class of its own (a metaclass) that says how it is compared and what its name is,
and a module's name may be a string of another kind than ``str``.
"""

from __future__ import annotations

from types import FrameType
from typing import Any

_name: Any = type.__dict__["__name__"].__get__


def name_of_class(kind: type) -> str:
    """Its name as CPython has it (``type_name`` in Objects/typeobject.c)."""
    return str(_name(kind))


def module_of(frame: FrameType) -> str:
    """The name of the module whose code a frame runs; empty if it has none."""
    name = dict.get(frame.f_globals, "__name__")
    return str.__str__(name) if issubclass(type(name), str) else ""
