"""The thread that delivers reports.

A collection can happen anywhere, even in code that holds a lock which a log handler or callback
needs. So the hook only queues its reports, and this thread delivers them to the watches.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable

from cyclescope import _log, _native
from cyclescope._imported import imported
from cyclescope._off import OFF
from cyclescope._system import get_ident, getpid, monotonic
from cyclescope._threads import (
    POLL_SECONDS,
    Helper,
    around_forks,
    has_threads,
    is_cooperative,
    pause,
)

Listener = Callable[[_native.CycleReport], None]

EXIT_SECONDS = 5.0
"""How long the exit of the program waits for reports that are still being written."""

FORK_SECONDS = 0.1
"""How long a fork waits at most for the end of the thread, which has nothing to do then."""

REFRESH_SECONDS = 5.0
"""How often the files of a watch that has found something are brought up to date."""

_listeners: dict[int, Listener] = {}
_refreshers: dict[int, Callable[[], None]] = {}
_farewells: dict[int, Callable[[], None]] = {}
_failed: set[int] = set()
_thread: Helper | None = None
_relieved: Helper | None = None
"""The thread that ends because the program forks."""
# Reentrant: a finalizer may start a watch in the middle of starting one.
_lock = threading.RLock()


def listen(watch: int, listener: Listener, farewell: Callable[[], None]) -> None:
    """Deliver the reports of a watch to ``listener``, and call ``farewell`` at exit."""
    with _lock:
        _listeners[watch] = listener
        _farewells[watch] = farewell
        if _thread is None or _thread.has_ended:
            _begin()
            _end_with_worker()


def _begin() -> None:
    global _thread
    thread = Helper(_tell_all, "cyclescope")
    # While the interpreter shuts down, no thread can start, and nothing is watched.
    with contextlib.suppress(RuntimeError):
        thread.start()
        _thread = thread


def keep_fresh(watch: int, refresh: Callable[[], None]) -> None:
    """Call ``refresh`` every few seconds while there is nothing to deliver."""
    if watch in _listeners:
        _refreshers[watch] = refresh


def forget(watch: int) -> None:
    """Deliver no more reports of a watch."""
    _refreshers.pop(watch, None)
    _listeners.pop(watch, None)
    _farewells.pop(watch, None)
    _failed.discard(watch)


def flush(timeout: float) -> bool:
    """Wait until everything found so far is delivered. False if that takes too long.

    Where threads of the program take turns on one real thread, the others go on meanwhile: a log
    handler that one of them has locked would otherwise be waited for in vain.
    """
    if not is_cooperative() or (_thread is not None and _thread.is_current):
        return _native.flush(timeout)
    deadline = monotonic() + timeout
    while not _native.flush(min(timeout, POLL_SECONDS)):
        if monotonic() >= deadline:
            return False
        # Where no other can have its turn, as in an event loop, sleeping is an error.
        with contextlib.suppress(Exception):
            pause()
    return True


def _tell_all(own: Helper) -> None:
    process = getpid()
    _log.patient_thread = get_ident()
    while True:
        try:
            # A callback may fork. The child returns here and has nothing to deliver.
            if getpid() != process:
                return
            if not _tell_next(own):
                if _log.is_ending:
                    own.begin()
                    _say_farewell()
                    own.end()
                return
        except BaseException:
            # Not even logging was possible, for lack of memory. Later reports may succeed.
            pass


def _tell_next(own: Helper) -> bool:
    """Wait for the next report and deliver it. False at the end."""
    delivery = _native.next_delivery(REFRESH_SECONDS if _refreshers else None)
    if delivery is None:
        return False
    watch, report, reason = delivery
    try:
        own.begin()
        if report is not None:
            listener = _listeners.get(watch)
            if listener is not None:
                listener(report)
        elif reason is not None:
            _log.error("cyclescope: %s", reason)
        else:
            for refresh in list(_refreshers.values()):
                refresh()
    except BaseException:
        # SystemExit too: it would only end this thread, which other watches need.
        if watch not in _failed:
            _failed.add(watch)
            _complain("cyclescope: the callback of a watch raised an exception; the watch goes on")
    finally:
        own.end()
    return True


def _end_with_worker() -> None:
    """Register for the exit of a ``multiprocessing`` worker, which runs no ``atexit`` handlers."""
    parent = imported("multiprocessing.process", "parent_process")
    finalize = imported("multiprocessing.util", "Finalize")
    if parent is not None and finalize is not None and parent() is not None:
        finalize(None, at_exit, exitpriority=0)


def _complain(message: str) -> None:
    """Log the current exception. A log handler that raises does not stop delivery."""
    with contextlib.suppress(BaseException):
        _log.exception(message)


def at_exit() -> None:
    """Report what has been found, and end the thread: the last that the process does of ours.

    The thread says the last words too. A log handler may block for ever, as where nobody reads what
    it writes: then the program ends without them.
    """
    thread = _thread
    deadline = monotonic() + EXIT_SECONDS
    _log.is_ending = True
    try:
        _native.close()
        if _listeners:
            _native.flush(EXIT_SECONDS)
    except Exception:
        _complain("cyclescope: the summary at exit failed")
    if thread is not None:
        thread.join_end(max(0.0, deadline - monotonic()))
        if not thread.has_ended:
            _log.give_up()
        _native.drop_deliveries()
    _say_farewell()


def _say_farewell() -> None:
    """End the watches, with a summary of each."""
    while _farewells:
        try:
            _, farewell = _farewells.popitem()
            farewell()
        except BaseException:
            _complain("cyclescope: the summary at exit failed")


def _before_fork() -> None:
    """End the thread: CPython warns of a fork where there are several, since 3.15 before it forks.

    Not while it delivers a report, for which no fork waits; nor where the program has threads of
    Python's too: CPython warns of those, and the end of ours would have to wait for its turn among
    them. Those of a library such as OpenBLAS may end for the fork themselves.
    """
    global _relieved
    thread = _thread
    if has_threads():
        return
    if thread is not None and not (thread.is_current or thread.is_alive() or thread.has_ended):
        _relieved = thread
        _native.relieve_teller(True)
        thread.join_end(FORK_SECONDS)


def _after_fork_in_parent() -> None:
    global _relieved
    thread, _relieved = _relieved, None
    if thread is None:
        return
    thread.join_end(EXIT_SECONDS)
    _native.relieve_teller(False)
    with _lock:
        if _listeners and thread.has_ended and _thread is thread:
            _begin()


def _after_fork_in_child() -> None:
    global _thread, _lock, _relieved
    _relieved = None
    _lock = threading.RLock()
    _thread = None
    _listeners.clear()
    _refreshers.clear()
    _farewells.clear()


if not OFF:
    atexit.register(at_exit)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork_in_child)
        if sys.version_info >= (3, 12):
            around_forks(_before_fork, _after_fork_in_parent)
