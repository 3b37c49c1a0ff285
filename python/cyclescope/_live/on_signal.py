"""What the process knows of its memory, written when it is signalled."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal as signals
from collections.abc import Callable
from pathlib import Path

from cyclescope import _log, _native, _ranks
from cyclescope._devices import Devices
from cyclescope._files import (
    check_writable,
    exists,
    folder_named,
    make_folder,
    temporary_folder,
    within,
    write_whole,
)
from cyclescope._live.growth import running_report
from cyclescope._live.redaction import shown_error
from cyclescope._off import OFF
from cyclescope._selection import StrPath, redact_if
from cyclescope._settings import settings
from cyclescope._system import absolute, environment, getpid
from cyclescope._threads import Helper

VARIABLE = "CYCLESCOPE_SIGNAL"

MAX_REPORTS = 100
"""Maximum number of answers in one process, if something signals without end."""

EXIT_SECONDS = 5.0
"""How long the end of the program waits for an answer that is being written."""


class SignalWatch:
    """Answers a signal until :meth:`stop` is called. Also a context manager."""

    def __init__(self, number: int, devices: list[str], report_dir: Path | None) -> None:
        self.signal = signals.Signals(number).name if number in _NAMED else str(number)
        """The name of the signal, such as ``SIGUSR2``."""
        self.reports: list[Path] = []
        """The text of each answer, oldest first; the other files of an answer are beside it."""
        self.errors: list[str] = []
        """What could not be written, and why."""
        self._number = number
        self._devices = devices
        self._report_dir = report_dir
        self._last: _native.Heap | None = None
        self._armed: int | None = None
        self._thread: Helper | None = None

    @property
    def is_running(self) -> bool:
        """True until the watch is stopped or replaced by another."""
        return _current is self

    def stop(self) -> None:
        """Answer no more, and let the signal do what it does by default.

        If the program has installed a handler since, that stays. Stopping twice does nothing.
        """
        global _current
        if _current is self:
            _current = None
            _native.disarm_signal(True)
            self._thread = None  # It leads back here.

    def _replace(self, number: int) -> None:
        """Stop for the watch of a signal, which answers that of this one too if it is another."""
        global _current
        _current = None
        _native.disarm_signal(number == self._number)
        self._thread = None

    def __enter__(self) -> SignalWatch:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "off" if OFF else "running" if self.is_running else "stopped"
        return f"<SignalWatch {self.signal} {state}, {len(self.reports)} reports>"

    def _start(self, number: int) -> None:
        self._armed = _native.arm_signal(number)
        self._thread = Helper(self._run, "cyclescope-signal")
        try:
            self._thread.start()
        except RuntimeError:
            _native.disarm_signal(True)
            raise

    def _run(self, own: Helper) -> None:
        process = getpid()
        # A log handler may fork. The child comes here too, and has nothing to answer.
        while getpid() == process and self._armed is not None:
            if not _native.next_signal(self._armed):
                return
            # A collection that begins by itself on this thread would run finalizers of the program
            # on it, and free what is to be reported.
            _pause_collections()
            try:
                own.begin()
                self._answer()
            finally:
                own.end()
                _resume_collections()

    def _answer(self) -> None:
        if len(self.reports) >= MAX_REPORTS:
            return
        try:
            answer = _Answer(self._folder())
            answer.write(self._devices, self._last)
            self._last = answer.heap
            self.reports.append(answer.path)
            self.errors += answer.errors
            _log.warning("%s: memory report written to %s", self.signal, answer.path)
            if len(self.reports) == MAX_REPORTS:
                _log.warning(
                    "%s: limit of %d reports reached; further signals are ignored",
                    self.signal,
                    MAX_REPORTS,
                )
        except BaseException as error:
            # SystemExit too: it would end this thread, which is to answer again.
            reason = shown_error(error)
            self.errors.append(reason)
            with contextlib.suppress(BaseException):
                _log.error("%s: cannot write the memory report: %s", self.signal, reason)

    def _folder(self) -> Path:
        if self._report_dir is None:
            self._report_dir = temporary_folder()
        make_folder(self._report_dir)
        return self._report_dir


class _Answer:
    """The files of one answer. The text is written last, so that whoever waits for it has all."""

    def __init__(self, folder: Path) -> None:
        stem, number = f"signal-{_ranks.stem()}", 0
        while exists(within(folder, f"{stem}-{number}.txt")):
            number += 1
        self.path = within(folder, f"{stem}-{number}.txt")
        self.heap: _native.Heap | None = None
        self.errors: list[str] = []
        self._parts: list[str] = []

    def write(self, devices: list[str], last: _native.Heap | None) -> None:
        """Take and write each part. One that fails leaves the others."""
        # Cycles first: they are what a collection in the meantime would free.
        self._part("reference cycles", lambda: self._cycles(devices))
        self._part("live memory", self._live)
        self._part("growth", lambda: self._growth(last))
        write_whole(self.path, "\n\n".join(self._parts) + "\n")

    def _part(self, title: str, take: Callable[[], str]) -> None:
        try:
            text = take()
        except Exception as error:
            text = f"not available: {shown_error(error)}"
            self.errors.append(f"{title}: {shown_error(error)}")
        self._parts.append(f"{title.upper()}\n\n{text.rstrip()}")

    def _cycles(self, devices: list[str]) -> str:
        report = _native.look(devices)
        self._write("cycles.json", report.to_json())
        self._write("cycles.html", report.to_html())
        return report.to_text()

    def _live(self) -> str:
        self.heap = heap = _native.heap()
        self._write("heap.json", heap.to_json())
        self._write("heap.html", heap.to_html())
        return heap.to_text()

    def _growth(self, last: _native.Heap | None) -> str:
        texts = []
        monitor = running_report()
        if monitor is not None:
            self._write("growth.json", monitor.to_json())
            texts.append(monitor.to_text())
        if last is not None and self.heap is not None:
            diff = self.heap.diff(last)
            self._write("diff.json", diff.to_json())
            texts.append(f"Since the last signal:\n\n{diff.to_text()}")
        return "\n\n".join(texts) or (
            "Nothing to compare with yet: the next signal is compared with this one. The findings "
            "of a running LeakMonitor (cyclescope.watch_growth) are shown here too."
        )

    def _write(self, kind: str, text: str) -> None:
        write_whole(self.path.with_name(f"{self.path.name.removesuffix('.txt')}-{kind}"), text)


def on_signal(
    signal: int | str = "USR2",
    report_dir: StrPath | None = None,
    *,
    devices: Devices | None = None,
    redact: bool = False,
) -> SignalWatch:
    """Write what holds memory whenever the process receives a signal (``kill -USR2 PID``).

    A thread of cyclescope writes the answer, so it works while the main thread waits in C code that
    has released the interpreter's lock: an NCCL collective, a data loader, ``time.sleep``. Each
    answer is a text with the reference cycles that hold memory, the owners of all live memory, and
    what has grown since the last signal or according to a running :class:`LeakMonitor`. JSON and
    HTML files are beside it. Nothing is collected, so no finalizer of the program runs. The program
    is paused for about as long as two full collections take.

    A process has one such watch: another call replaces it, and answers the signal of the one before
    too. ``CYCLESCOPE_SIGNAL=USR2`` calls
    this function when cyclescope is imported. Forked children ignore the signal unless they call
    this function themselves. Programs that this process starts (``subprocess``) keep the default:
    the signal ends them. A handler that the program installs later replaces this one.

    Args:
        signal: ``USR1``, ``USR2``, or a real-time signal (by number, from ``signal.SIGRTMIN`` on).
        report_dir: Folder for the files; by default as in the :func:`settings`, or else a new
            temporary folder, created at the first signal and named in the log.
        devices: Which memory to check for reference cycles; see :func:`warn_tensor_cycles`.
        redact: See :func:`warn_tensor_cycles`.

    Raises:
        ValueError: If ``signal`` is not one of these, if the program handles, ignores or blocks
            it, or if another argument or a setting is invalid.
        OSError: If ``report_dir`` is given and not writable.
    """
    global _current
    number = signal_number(signal)
    configured = settings()
    chosen = configured.report_dir if report_dir is None else folder_named(report_dir)
    names = configured.devices_or(devices)
    redact_if(redact)
    # Not one from the settings: without a handler, the signal that they ask for ends the program.
    if report_dir is not None and chosen is not None and not OFF:
        check_writable(chosen)
    watch = SignalWatch(number, names, None if chosen is None else Path(absolute(chosen)))
    if OFF:
        return watch
    _refuse_blocked(number, watch.signal)
    if _current is not None:
        _current._replace(number)
    try:
        watch._start(number)
    except ValueError as error:
        raise ValueError(
            f"{watch.signal} is left alone: {error}. Choose another, such as "
            f"{'USR1' if watch.signal == 'SIGUSR2' else 'USR2'} or signal.SIGRTMIN"
        ) from None
    _current = watch
    return watch


def follow_environment() -> None:
    """Do what ``CYCLESCOPE_SIGNAL`` asks for, and log an error if that is not possible."""
    try:
        on_signal(environment(VARIABLE, "").strip())
    except Exception as error:
        _log.error("cyclescope: %s has no effect: %s", VARIABLE, error)


_paused = False
"""Whether automatic collections are off because of an answer."""


def _pause_collections() -> None:
    global _paused
    if gc.isenabled():
        _paused = True
        gc.disable()


def _resume_collections() -> None:
    global _paused
    if _paused:
        _paused = False
        gc.enable()


_NAMED = {int(each) for each in signals.Signals}

_current: SignalWatch | None = None


def signal_number(signal: object) -> int:
    """The number of a signal that is free for programs to use.

    Raises:
        ValueError: If it is another.
    """
    name = signal.strip().upper().removeprefix("SIG") if isinstance(signal, str) else ""
    allowed = {
        each: int(getattr(signals, f"SIG{each}"))
        for each in ("USR1", "USR2")
        if hasattr(signals, f"SIG{each}")
    }
    if name.isdecimal():
        number = int(name)
    elif isinstance(signal, int) and not isinstance(signal, bool):
        number = int(signal)
    else:
        number = allowed.get(name, 0)
    least, most = getattr(signals, "SIGRTMIN", 1), getattr(signals, "SIGRTMAX", 0)
    if number not in allowed.values() and not least <= number <= most:
        raise ValueError(
            f"signal must be one that is free for programs to use: USR1, USR2, or a number from "
            f"signal.SIGRTMIN to signal.SIGRTMAX ({least} to {most}), not {signal!r}"
        )
    return number


def _refuse_blocked(number: int, name: str) -> None:
    if number in signals.pthread_sigmask(signals.SIG_BLOCK, ()):
        raise ValueError(
            f"{name} is left alone: the program blocks it in this thread, and may wait for it "
            "itself (signal.sigwait). Choose another"
        )


def _at_exit() -> None:
    watch = _current
    if watch is not None:
        # A signal on the way must not end the program now: the handler stays.
        _native.disarm_signal(False)
        if watch._thread is not None:
            watch._thread.join_end(EXIT_SECONDS)


def _after_fork_in_child() -> None:
    global _current
    _current = None
    _resume_collections()


if not OFF:
    atexit.register(_at_exit)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork_in_child)
