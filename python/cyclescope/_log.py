"""The logger ``cyclescope``, whose warnings go to standard error where it is off by accident.

``logging.config.dictConfig`` and ``fileConfig`` disable all loggers that exist and that they do not
name, unless they are told otherwise. Whoever silences this logger on purpose, by its level, a
filter, a handler, ``disabled`` or ``logging.disable``, is obeyed.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from cyclescope import _native, _system

# `logging.getLogger()` may be a test's.
_loggers = logging.Logger.manager
logger = _loggers.getLogger("cyclescope")

# Nobody knows of it, so only what disables all loggers disables it.
_sentinel = _loggers.getLogger("cyclescope.sentinel")

_CALLED = (
    (os, "getpid", _system.getpid),
    (os.path, "basename", _system.basename),
    (time, "time", _system.now),
    (time, "time_ns", _system.time_ns),
)
"""What ``logging.LogRecord`` calls."""

FIELDS = "cyclescope"
"""The attribute of a log record that holds its fields."""

CONTINUED = re.compile(r"\n {8,}")
"""Between the lines of a paragraph of a warning."""

_said = False

is_ending = False
"""Whether the program ends: then nothing waits for whoever reads what is written."""

patient_thread: int | None = None
"""The thread that may wait for a reader."""

_has_given_up = False

WAIT_SECONDS = 0.1
"""How often a message that waits for a reader looks whether the program ends."""


def debug(message: str, *args: object) -> None:
    """Log a message for debugging."""
    _log(logging.DEBUG, message, args)


def info(message: str, *args: object) -> None:
    """Log a message that tells of nothing wrong."""
    _log(logging.INFO, message, args)


def warning(message: str, *args: object, fields: Mapping[str, Any] | None = None) -> None:
    """Log a warning, with fields for structured logging."""
    _log(logging.WARNING, message, args, fields)


def error(message: str, *args: object, fields: Mapping[str, Any] | None = None) -> None:
    """Log an error, with fields for structured logging."""
    _log(logging.ERROR, message, args, fields)


def exception(message: str) -> None:
    """Log the exception that is being handled."""
    _log(logging.ERROR, message, (), with_exception=True)


def why_unseen(level: int = logging.WARNING) -> str | None:
    """Why nobody sees a message although nobody meant that, as the end of a sentence; else None."""
    if logger.manager.disable >= level or logger.getEffectiveLevel() > level:
        return None
    if not (logger.disabled and _sentinel.disabled and "logging.config" in sys.modules):
        return None
    return (
        "the configuration of logging disabled the logger `cyclescope`: set "
        "disable_existing_loggers to False there, or configure this logger too"
    )


def give_up() -> None:
    """Log nothing any more: a handler blocks, and so would ``logging.shutdown()`` on its lock."""
    global _has_given_up
    _has_given_up = True
    blocked = [handler for handler in _handlers() if not _is_free(handler)]
    if blocked:
        known: list[Any] = getattr(logging, "_handlerList", [])
        known[:] = [reference for reference in known if reference() not in blocked]


def _is_free(handler: logging.Handler) -> bool:
    """Whether no thread is in the handler."""
    lock = handler.lock
    if lock is None:
        return True
    is_free = lock.acquire(blocking=False)
    if is_free:
        lock.release()
    return is_free


def _handlers() -> Iterator[logging.Handler]:
    """The handlers that get the messages."""
    source: logging.Logger | None = logger
    is_any = False
    while source is not None:
        is_any |= bool(source.handlers)
        yield from list(source.handlers)
        source = source.parent if source.propagate else None
    if not is_any and logging.lastResort is not None:
        yield logging.lastResort


def fitting(text: str) -> str:
    """The text, without line breaks in its paragraphs if a handler of rich breaks lines itself."""
    for handler in _handlers():
        if any(base.__module__ == "rich.logging" for base in type(handler).__mro__):
            return CONTINUED.sub(" ", text)
    return text


def _log(
    level: int,
    message: str,
    args: tuple[object, ...],
    fields: Mapping[str, Any] | None = None,
    *,
    with_exception: bool = False,
) -> None:
    if _has_given_up or not _has_readers():
        return
    extra = None if fields is None else {FIELDS: dict(fields)}
    reason = why_unseen(level) if level >= logging.WARNING else None
    if reason is not None:
        _fall_back(message % args if args else message, reason, with_exception=with_exception)
    # What a handler raises is not for the line of the program that happens to run.
    with contextlib.suppress(Exception):
        if all(getattr(module, name) is original for module, name, original in _CALLED):
            # The caller of the function above is the place of the message.
            logger.log(level, message, *args, extra=extra, exc_info=with_exception, stacklevel=3)
        elif logger.isEnabledFor(level):
            exc_info = sys.exc_info() if with_exception else None
            logger.handle(_record(level, message, args, exc_info, extra))


def _has_readers() -> bool:
    """Whether there is room for a message in each pipe that it is written to.

    Whoever writes into a full pipe waits within the stream, with its lock, for which the
    interpreter waits when it ends. So the thread that delivers reports waits here; others do not.
    """
    while any(map(_native.is_full_pipe, _files())):
        if is_ending or _system.get_ident() != patient_thread:
            return False
        _system.sleep(WAIT_SECONDS)
    return True


def _files() -> Iterator[int]:
    """The files that the handlers write to, by their descriptors."""
    for handler in _handlers():
        with contextlib.suppress(Exception):
            stream = getattr(handler, "stream", None)
            if isinstance(stream, io.TextIOWrapper):
                yield stream.fileno()


def _record(
    level: int, message: str, args: tuple[object, ...], exc_info: Any, extra: Any
) -> logging.LogRecord:
    """A record that is made without the functions of the system that a test has replaced."""
    if logging.getLogRecordFactory() is not logging.LogRecord:
        return logger.makeRecord(
            logger.name, level, __file__, 0, message, args, exc_info, "", extra
        )
    record = logging.LogRecord.__new__(logging.LogRecord)
    created = _system.now()
    record.__dict__.update(
        name=logger.name,
        levelno=level,
        levelname=logging.getLevelName(level),
        msg=message,
        args=args,
        exc_info=exc_info,
        exc_text=None,
        stack_info=None,
        pathname=__file__,
        filename="_log.py",
        module="_log",
        lineno=0,
        funcName="",
        created=created,
        msecs=created % 1 * 1000,
        relativeCreated=0.0,
        thread=_system.get_ident(),
        threadName="",
        process=_system.getpid(),
        processName="",
        taskName=None,
        **(extra or {}),
    )
    return record


def _fall_back(text: str, reason: str, *, with_exception: bool) -> None:
    global _said
    if with_exception:
        import traceback

        text += f"\n{traceback.format_exc().rstrip()}"
    if not _said:
        _said = True
        text += f"\ncyclescope writes to standard error because {reason}."
    stream = sys.stderr
    # Nothing more can be done where this fails too.
    if stream is not None:
        with contextlib.suppress(Exception):
            stream.write(f"{text}\n")
            stream.flush()
