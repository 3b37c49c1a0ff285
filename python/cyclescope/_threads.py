"""How threads of cyclescope stay out of the program's way."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """Block all signals in threads started here, so that the program's own threads get them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def list_thread(thread: threading.Thread | None) -> None:
    """List this thread in ``threading.enumerate()`` or not: programs join all listed threads."""
    with threading._active_limbo_lock:  # type: ignore[attr-defined]
        threading._active.pop(threading.get_ident(), None)  # type: ignore[attr-defined]
        if thread is not None:
            threading._active[threading.get_ident()] = thread  # type: ignore[attr-defined]
