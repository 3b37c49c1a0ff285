"""What the commands write to the standard streams, which may be closed, broken, full or ASCII."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator


class OutputError(Exception):
    """Standard output cannot be written to. The message says why."""


def out(*lines: str, end: str = "\n", flush: bool = False) -> None:
    """Write to standard output; what its encoding lacks is escaped.

    If its reader has closed the pipe, this and all that follows is dropped: the command goes on,
    and its status stays what it is.

    Raises:
        OutputError: If it cannot be written to.
    """
    with _checked():
        text = "\n".join(lines)
        try:
            print(text, end=end, flush=flush)
        except UnicodeEncodeError as error:
            escaped = text.encode(error.encoding, "backslashreplace").decode(error.encoding)
            print(escaped, end=end, flush=flush)


def out_bytes(data: bytes) -> None:
    """Write bytes to standard output, as they are.

    Raises:
        OutputError: If it cannot be written to.
    """
    with _checked():
        sys.stdout.flush()
        sys.stdout.buffer.write(data)


def finish() -> None:
    """Write what is buffered.

    Raises:
        OutputError: If that cannot be done.
    """
    if sys.stdout is not None:
        with _checked():
            sys.stdout.flush()


def tell(text: str) -> None:
    """Write a line to standard error, if there is one that can be written to."""
    stream = sys.stderr
    if stream is not None:
        with contextlib.suppress(Exception):
            print(text, file=stream)


def drop() -> None:
    """Have what is written to standard output from now on, also at exit, go nowhere."""
    with contextlib.suppress(Exception):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@contextlib.contextmanager
def _checked() -> Iterator[None]:
    if sys.stdout is None:
        raise OutputError("it is closed")
    try:
        yield
    except BrokenPipeError:
        drop()
    except OSError as error:
        drop()
        raise OutputError(error.strerror or str(error)) from None
    except ValueError as error:
        # Such as a stream that the program has closed.
        raise OutputError(str(error)) from None
