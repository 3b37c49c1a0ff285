"""Exceptions that signal handlers of the program raise while code of cyclescope runs."""

from __future__ import annotations

from functools import partial
from types import CodeType

from cyclescope._imported import imported


def is_of_handler(error: BaseException) -> bool:
    """True for what a signal handler of the program has raised, such as ``KeyboardInterrupt``.

    On the main thread a handler runs between any two instructions, also of ours. What it raises is
    meant for the program.
    """
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        return True
    handler_of = imported("signal", "getsignal")
    if handler_of is None:
        return False
    numbers = imported("signal", "valid_signals") or set
    codes = {_code_of(handler_of(number)) for number in numbers()} - {None}
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code in codes:
            return True
        step = step.tb_next
    return False


def _code_of(handler: object) -> CodeType | None:
    while isinstance(handler, partial):
        handler = handler.func
    for function in (
        handler,
        getattr(handler, "__func__", None),
        vars(type(handler)).get("__call__"),
    ):
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None
