"""Exceptions that signal handlers of the program raise while code of cyclescope runs."""

from __future__ import annotations

from functools import partial
from types import CodeType, FrameType

from cyclescope._imported import imported


def is_of_handler(error: BaseException) -> bool:
    """True for what a signal handler of the program has raised, such as ``KeyboardInterrupt``.

    On the main thread a handler runs between any two instructions, also of ours. What it raises is
    meant for the program.
    """
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        return True
    codes = _codes_of_handlers()
    step = error.__traceback__
    while step is not None:
        frame = step.tb_frame
        # A handler may have put another in its place before it raised.
        if frame.f_code in codes or _has_frame(frame):
            return True
        step = step.tb_next
    return False


def _codes_of_handlers() -> set[CodeType | None]:
    handler_of = imported("signal", "getsignal")
    numbers = imported("signal", "valid_signals")
    if handler_of is None or numbers is None:
        return set()
    return {_code_of(handler_of(number)) for number in numbers()} - {None}


def _code_of(handler: object) -> CodeType | None:
    while isinstance(handler, partial):
        handler = handler.func
    call = vars(type(handler)).get("__call__")
    for function in (handler, getattr(handler, "__func__", None), call):
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None


def _has_frame(frame: FrameType) -> bool:
    """True for a call that got a frame, as handlers do, and no code of ours does."""
    code = frame.f_code
    # Arguments come first, and `*` and `**` after them. One local more does no harm.
    count = code.co_argcount + code.co_kwonlyargcount + 2
    variables = frame.f_locals
    given = [variables.get(name) for name in code.co_varnames[:count]]
    several = (each for values in given if isinstance(values, tuple) for each in values)
    return any(isinstance(value, FrameType) for value in (*given, *several))
