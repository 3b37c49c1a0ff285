"""Exceptions that signal handlers of the program raise while code of cyclescope runs."""

from __future__ import annotations

import sys
from functools import partial
from types import CodeType, FrameType

from cyclescope._imported import imported

OF_THE_PROGRAM = (KeyboardInterrupt, SystemExit, TimeoutError)
"""What nothing that cyclescope calls raises."""
LIBRARIES = frozenset({"torch", "jax", "jaxlib", "cupy", "numba", "numpy", "tensorflow"})
"""What cyclescope calls, besides the standard library."""


def is_of_handler(error: BaseException) -> bool:
    """True for what a signal handler of the program has raised, such as ``KeyboardInterrupt``.

    On the main thread a handler runs between any two instructions, also of ours, and another thread
    may raise an exception there (``PyThreadState_SetAsyncExc``). Both are meant for the program:
    what is of its own classes, and what was raised in a function that is neither ours nor of a
    library that we call.
    """
    if isinstance(error, OF_THE_PROGRAM):
        return True
    try:
        return _is_of_the_program(error)
    except MemoryError:
        return False


def _is_of_the_program(error: BaseException) -> bool:
    root = _root(vars(type)["__module__"].__get__(type(error)))
    if root not in ("builtins", "cyclescope", "pyo3_runtime") and not _is_called(root):
        return True
    codes = _codes_of_handlers()
    step, last = error.__traceback__, None
    while step is not None:
        last = step.tb_frame
        if last.f_code in codes:
            return True
        step = step.tb_next
    return last is not None and not _is_of_ours(last)


def _is_of_ours(frame: FrameType) -> bool:
    """True for a function of cyclescope, or of what it calls."""
    root = _root(dict.get(frame.f_globals, "__name__"))
    return root == "cyclescope" or _is_called(root)


def _is_called(root: str) -> bool:
    return root in LIBRARIES or root in sys.stdlib_module_names


def _root(module: object) -> str:
    return module.partition(".")[0] if type(module) is str else ""


def _codes_of_handlers() -> set[CodeType | None]:
    handler_of = imported("signal", "getsignal")
    numbers = imported("signal", "valid_signals")
    if handler_of is None or numbers is None:
        return set()
    return {_code_of(handler_of(number)) for number in numbers()} - {None}


def _code_of(handler: object) -> CodeType | None:
    while type(handler) is partial:
        handler = handler.func
    call = vars(type(handler)).get("__call__")
    for function in (handler, getattr(handler, "__func__", None), call):
        code = getattr(function, "__code__", None)
        if type(code) is CodeType:
            return code
    return None
