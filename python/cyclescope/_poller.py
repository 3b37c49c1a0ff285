"""Threads that look at something every moment, out of the program's way."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable

from cyclescope._off import OFF
from cyclescope._system import monotonic
from cyclescope._threads import Flag, Helper, around_forks, has_threads

FORK_SECONDS = 0.1
"""How long a fork waits at most for the end of the threads."""


class Poller:
    """Calls a function every so many seconds on a thread of its own, until it is stopped.

    Where it waits when the process forks, the thread ends before that and begins again behind it,
    with what was left to wait: CPython warns of a fork where there are several. A look that goes on
    is not waited for.

    Raises:
        RuntimeError: If no thread can start.
    """

    def __init__(self, look: Callable[[], object], seconds: float, name: str) -> None:
        self._look = look
        self._seconds = seconds
        self._name = name
        self._next = monotonic() + seconds
        self._ended = Flag()
        self._is_looking = False
        self._is_stopped = False
        self._thread: Helper | None = None
        self._begin()
        _pollers[id(self)] = self

    def stop(self) -> None:
        """Look no more. Stopping twice does nothing."""
        self._is_stopped = True
        self._ended.set()
        # They lead back here.
        self._thread, self._look = None, _nothing
        _pollers.pop(id(self), None)

    def end(self) -> None:
        """End the thread before a fork, if it waits."""
        if not self._is_looking:
            self._ended.set()

    def join_end(self, timeout: float) -> None:
        """Wait for the end of the thread, if it was told to end."""
        if self._thread is not None and self._ended.is_set():
            self._thread.join_end(timeout)

    def resume(self) -> None:
        """Begin again behind a fork, if the thread was told to end. Where none can start, later."""
        if self._ended.is_set() and not self._is_stopped:
            with contextlib.suppress(RuntimeError):
                self._begin()

    def _begin(self) -> None:
        ended = Flag()

        def poll(_: Helper) -> None:
            while not ended.wait(max(0.0, self._next - monotonic())):
                self._is_looking = True
                try:
                    self._look()
                finally:
                    self._is_looking = False
                    self._next = monotonic() + self._seconds

        thread = Helper(poll, self._name)
        thread.start()
        self._ended, self._thread = ended, thread
        if self._is_stopped:
            # Meanwhile, on another thread.
            self.stop()


def _nothing() -> None: ...


_pollers: dict[int, Poller] = {}


def _before_fork() -> None:
    if has_threads():
        return
    deadline = monotonic() + FORK_SECONDS
    for poller in list(_pollers.values()):
        poller.end()
    for poller in list(_pollers.values()):
        poller.join_end(max(0.0, deadline - monotonic()))


def _after_fork_in_parent() -> None:
    for poller in list(_pollers.values()):
        poller.resume()


if not OFF and hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pollers.clear)
    if sys.version_info >= (3, 12):
        around_forks(_before_fork, _after_fork_in_parent)
