"""How threads of cyclescope stay out of the program's way."""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from threading import Thread
from typing import Any

from cyclescope import _native
from cyclescope._imported import imported
from cyclescope._off import OFF
from cyclescope._system import is_finalizing, monotonic, sleep

# Programs replace them in their tests, too.
_start = Thread.start
_mask = getattr(signal, "pthread_sigmask", None)

POLL_SECONDS = 0.002

_helpers: set[int] = set()
"""The threads of cyclescope that have been started, by `id()`."""

STACK_BYTES = 1 << 20
"""What a thread of cyclescope has for its stack at least, whatever the program gives its own."""


def original(name: str) -> Any | None:
    """A function of ``_thread`` in whose place gevent or eventlet has put another; else None.

    What they call a thread shares one real thread with the program, which stands still while
    cyclescope waits in native code.
    """
    is_patched = imported("gevent.monkey", "is_object_patched")
    if is_patched is not None and is_patched("_thread", name):
        return sys.modules["gevent.monkey"].get_original("_thread", name)
    is_patched = imported("eventlet.patcher", "is_monkey_patched")
    if is_patched is not None and is_patched("thread"):
        return imported("__original_module__thread", name)
    return None


def _real(name: str) -> Any:
    """A function of ``_thread`` as the interpreter has it."""
    return original(name) or getattr(_thread, name)


def is_cooperative() -> bool:
    """Whether the threads of the program take turns on one real thread (gevent, eventlet)."""
    return original("start_new_thread") is not None


def pause() -> None:
    """Wait a moment, in which other threads go on."""
    # Where threads take turns, the function in its place gives others theirs.
    (time.sleep if is_cooperative() else sleep)(POLL_SECONDS)


@contextlib.contextmanager
def _conditions() -> Iterator[None]:
    """Give threads that are started meanwhile no smaller stack than they need.

    Raises:
        RuntimeError: While the interpreter shuts down. Before 3.12, a thread that is started then
            never runs, and its starter waits for it for ever.
    """
    if is_finalizing():
        raise RuntimeError("can't create new thread at interpreter shutdown")
    stack_size = _real("stack_size")
    before = stack_size()
    if not 0 < before < STACK_BYTES:
        yield
        return
    stack_size(STACK_BYTES)
    try:
        yield
    finally:
        if stack_size() == STACK_BYTES:
            stack_size(before)


def has_threads() -> bool:
    """Whether the program has Python threads beside the current one and those of cyclescope."""
    return _thread._count() > len(_helpers)


def around_forks(before: Callable[[], None], behind: Callable[[], None]) -> None:
    """Have a function called before the process forks, and another behind that in the parent."""
    begin_again = behind
    if (3, 13) <= sys.version_info < (3, 13, 6):
        # These count the threads only after such functions (gh-137109): threads begin again when
        # the main thread next runs code in Python.
        begin_again = partial(_native.call_in_main_thread, behind)
    os.register_at_fork(before=before, after_in_parent=begin_again)


def run_aside(run: Callable[[], object], name: str) -> None:
    """Run a function on a thread of its own, for whose end the program does not wait at exit.

    Raises:
        RuntimeError: If no thread can start.
    """

    def work(own: Helper) -> None:
        own.begin()
        try:
            run()
        finally:
            own.end()

    Helper(work, name).start()


class Flag:
    """Like ``threading.Event``, for real threads: the wait is not the program's to replace."""

    def __init__(self) -> None:
        self._is_set = False
        self._lock = _real("allocate_lock")()
        self._lock.acquire()

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._is_set

    def set(self) -> None:
        """End all waits. Setting it twice does nothing."""
        if not self._is_set:
            self._is_set = True
            with contextlib.suppress(RuntimeError):
                self._lock.release()

    def wait(self, seconds: float) -> bool:
        """Wait until it is set, for so many seconds at most; whether it is."""
        if not self._is_set and self._lock.acquire(timeout=seconds):
            self._lock.release()
        return self._is_set


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """Block all signals in threads started here, so that the program's own threads get them."""
    if _mask is None:
        yield
        return
    before = _mask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        _mask(signal.SIG_SETMASK, before)


class Helper(Thread):
    """A thread of cyclescope, which the program sees only while it works.

    It receives no signals: a program may block those that it waits for. Programs wait for all
    threads that ``threading.enumerate()`` lists: what they wait for is then the end of the work,
    not of the thread.
    """

    def __init__(self, run: Callable[[Helper], None], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._work = run
        self._is_at_work = False
        self._real_ident: int | None = None
        self._end_alone: Flag | None = None
        """Where ``threading`` would start no real thread: set when this one has ended."""

    def start(self) -> None:
        """Start a real thread.

        Raises:
            RuntimeError: If no thread can start.
        """
        start = original("start_new_thread")
        _helpers.add(id(self))
        try:
            with _conditions(), signals_blocked():
                if start is None:
                    _start(self)
                    return
                ended = Flag()
                start(self._run_alone, (ended,))
                self._end_alone = ended
        except BaseException:
            _helpers.discard(id(self))
            raise

    @property
    def is_current(self) -> bool:
        """Whether the caller is on this thread."""
        return self._real_ident is not None and self._real_ident == int(_real("get_ident")())

    def run(self) -> None:
        """As the target of a thread, which would refer to it."""
        self._run_unlisted()

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
        if self.is_current:
            raise RuntimeError("cannot join current thread")
        deadline = None if timeout is None else monotonic() + timeout
        while self.is_alive() and (deadline is None or monotonic() < deadline):
            pause()

    def is_alive(self) -> bool:
        """Whether it is at work."""
        return self._is_at_work and not self.has_ended

    @property
    def has_ended(self) -> bool:
        """Whether the thread itself has come to its end, or has not begun."""
        return not super().is_alive() if self._end_alone is None else self._end_alone.is_set()

    def join_end(self, timeout: float) -> None:
        """Wait for the end of the thread itself."""
        if self._end_alone is None:
            super().join(timeout)
        else:
            self._end_alone.wait(timeout)

    def _run_unlisted(self) -> None:
        try:
            self._real_ident = int(_real("get_ident")())
            _list(None)
            self._work(self)
        finally:
            _helpers.discard(id(self))
            # `threading` expects to find the thread in its list when it ends.
            _list(self)

    def _run_alone(self, ended: Flag) -> None:
        try:
            self._real_ident = int(_real("get_ident")())
            self._ident = threading.get_ident()
            self._work(self)
        finally:
            _helpers.discard(id(self))
            ended.set()


def _list(thread: Thread | None) -> None:
    """List this thread in ``threading.enumerate()`` or not."""
    # A lock of gevent's or eventlet's has its waiters switch on the thread that holds it. Each step
    # here is one operation of a dictionary, which needs none.
    lock = contextlib.nullcontext() if is_cooperative() else threading._active_limbo_lock  # type: ignore[attr-defined]
    with lock:
        threading._active.pop(threading.get_ident(), None)  # type: ignore[attr-defined]
        if thread is not None:
            threading._active[threading.get_ident()] = thread  # type: ignore[attr-defined]


if not OFF and hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.clear)
