"""How threads of cyclescope stay out of the program's way."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


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
        self._is_idle = threading.Event()
        self._is_idle.set()

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """List this thread, which is the current one, meanwhile."""
        self._is_idle.clear()
        _list(self)
        try:
            yield
        finally:
            _list(None)
            self._is_idle.set()

    def join(self, timeout: float | None = None) -> None:
        """Wait until there is nothing to do."""
        if threading.get_ident() == self.ident:
            super().join(timeout)  # which raises an error
        self._is_idle.wait(timeout)

    def is_alive(self) -> bool:
        """Whether it is at work."""
        return not self._is_idle.is_set() and super().is_alive()

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
