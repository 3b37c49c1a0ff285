"""How threads of cyclescope stay out of the program's way."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator

POLL_SECONDS = 0.002


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


class Helper(threading.Thread):
    """A thread that goes on for ever, and that the program sees only while it works.

    Programs wait for all threads that ``threading.enumerate()`` lists: what they wait for is then
    the end of the work, not of the thread.
    """

    def __init__(self, run: Callable[[Helper], None], name: str) -> None:
        super().__init__(target=self._run_unlisted, args=(run,), name=name, daemon=True)
        self._is_at_work = False

    def begin(self) -> None:
        """List this thread, which is the current one, until :meth:`end`."""
        self._is_at_work = True
        _list(self)

    def end(self) -> None:
        """List it no longer."""
        self._is_at_work = False
        _list(None)

    def join(self, timeout: float | None = None) -> None:
        """Wait until there is nothing to do.

        No lock is waited for: one that is written in Python stays locked for ever if there is no
        memory for the call that unlocks it.
        """
        if threading.get_ident() == self.ident:
            super().join(timeout)  # which raises an error
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.is_alive() and (deadline is None or time.monotonic() < deadline):
            time.sleep(POLL_SECONDS)

    def is_alive(self) -> bool:
        """Whether it is at work."""
        return self._is_at_work and super().is_alive()

    @property
    def has_ended(self) -> bool:
        """Whether the thread itself has come to its end, or has not begun."""
        return not super().is_alive()

    def join_end(self, timeout: float) -> None:
        """Wait for the end of the thread itself."""
        super().join(timeout)

    def _run_unlisted(self, run: Callable[[Helper], None]) -> None:
        try:
            _list(None)
            run(self)
        finally:
            # `threading` expects to find the thread in its list when it ends.
            _list(self)


def _list(thread: threading.Thread | None) -> None:
    """List this thread in ``threading.enumerate()`` or not."""
    with threading._active_limbo_lock:  # type: ignore[attr-defined]
        threading._active.pop(threading.get_ident(), None)  # type: ignore[attr-defined]
        if thread is not None:
            threading._active[threading.get_ident()] = thread  # type: ignore[attr-defined]
