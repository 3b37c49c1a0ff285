"""What the commands write to the standard streams, which may be closed, broken, full or ASCII."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import TextIO

_print = print
_write = os.write
_kept: tuple[TextIO | None, TextIO | None] | None = None


def keep_streams() -> None:
    """Write to the streams of now from now on, whatever a program puts in their place."""
    global _kept
    _kept = (sys.stdout, sys.stderr)


def _stdout() -> TextIO | None:
    return sys.stdout if _kept is None else _kept[0]


UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What a file's name may have, and a terminal obeys or shows in another order."""


class OutputError(Exception):
    """Standard output cannot be written to. The message says why."""


def out(*lines: str, end: str = "\n", flush: bool = False) -> None:
    """Write to standard output; what its encoding lacks is escaped.

    If its reader has closed the pipe, this and all that follows is dropped: the command goes on,
    and its status stays what it is.

    Raises:
        OutputError: If it cannot be written to.
    """
    with _checked() as stream:
        text = "\n".join(lines)
        try:
            _print(text, end=end, flush=flush, file=stream)
        except UnicodeEncodeError as error:
            escaped = text.encode(error.encoding, "backslashreplace").decode(error.encoding)
            _print(escaped, end=end, flush=flush, file=stream)


def out_bytes(data: bytes) -> None:
    """Write bytes to standard output, as they are.

    Raises:
        OutputError: If it cannot be written to.
    """
    with _checked() as stream:
        stream.flush()
        stream.buffer.write(data)


def finish() -> None:
    """Write what is buffered.

    Raises:
        OutputError: If that cannot be done.
    """
    if _stdout() is not None:
        with _checked() as stream:
            stream.flush()


def tell(text: str) -> None:
    """Write a line to standard error, if there is one that can be written to.

    Nothing of it stays in the stream's buffer: what cannot be written there at exit changes the
    status of the program (``flush_std_files`` in Python/pylifecycle.c).
    """
    stream = sys.stderr if _kept is None else _kept[1]
    if stream is None:
        return
    text = UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text)
    with contextlib.suppress(Exception):
        try:
            descriptor = stream.fileno()
        except Exception:
            _print(text, file=stream)
            return
        stream.flush()
        data = f"{text}\n".encode(stream.encoding, "backslashreplace")
        while data:
            data = data[_write(descriptor, data) :]


def drop() -> None:
    """Have what is written to standard output from now on, also at exit, go nowhere."""
    stream = _stdout()
    with contextlib.suppress(Exception):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        if stream is not None:
            os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


@contextlib.contextmanager
def _checked() -> Iterator[TextIO]:
    stream = _stdout()
    if stream is None:
        raise OutputError("it is closed")
    try:
        yield stream
    except BrokenPipeError:
        drop()
    except OSError as error:
        drop()
        raise OutputError(error.strerror or str(error)) from None
    except ValueError as error:
        # Such as a stream that the program has closed.
        raise OutputError(str(error)) from None
