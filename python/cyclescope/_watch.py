"""Watching a program for tensors that reference cycles keep alive."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from cyclescope import _history, _native, _teller
from cyclescope._native import CycleReport, LeakTally
from cyclescope._off import OFF
from cyclescope._selection import Devices, StrPath, ignored_names
from cyclescope._settings import settings

if TYPE_CHECKING:
    from cyclescope._reporter import Reporter

STOP_SECONDS = 30.0
"""How long :meth:`Watch.stop` waits for reports: the first may have a large history to read."""


class Watch:
    """A running watch. Stop it with :meth:`stop`, or use it as a context manager.

    With ``CYCLESCOPE_OFF`` set it never runs: see :func:`warn_tensor_cycles`.
    """

    _final: list[LeakTally] | None = None
    """What was seen, once it is stopped."""

    def __init__(
        self,
        devices: list[str],
        listener: _teller.Listener,
        *,
        once_per_leak: bool,
        ignore: Sequence[str] = (),
        farewell: Callable[[Watch], None] | None = None,
        closing: Callable[[int], None] | None = None,
        record_history: bool = False,
        thorough: bool = False,
        reporter: Reporter | None = None,
    ) -> None:
        self._reporter = reporter
        if OFF:
            self._final = []
            return
        self._history = _history.start() if record_history else None
        self._number = _native.start_watch(devices, once_per_leak, list(ignore), thorough)
        self._farewell = farewell
        self._closing = closing
        history = self._history
        if history is None:
            told = listener
        else:

            def told(report: CycleReport) -> None:
                listener(history.explain(report))

        _teller.listen(self._number, told, self._at_exit)

    @property
    def is_running(self) -> bool:
        """True until it is stopped, or the program ends."""
        return self._final is None

    @property
    def leaks(self) -> list[LeakTally]:
        """What was seen so far, the leak that held most bytes first."""
        if self._final is not None:
            return self._final
        return _native.tallies(self._number)

    @property
    def report(self) -> CycleReport | None:
        """One report of all that was seen, each leak as it was at first and with its counts.

        None if nothing was seen, and for :func:`observe_tensor_cycles`, which keeps no reports.
        """
        return None if self._reporter is None else self._reporter.seen(self.leaks)

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until everything found so far has been reported.

        Returns:
            False if that took longer than ``timeout`` seconds.
        """
        return OFF or _native.flush(timeout)

    def stop(self) -> None:
        """End the watch, after reporting what it has found. Stopping twice does nothing."""
        if self._final is None:
            self.flush(STOP_SECONDS)
            self._end()
            if self._history is not None:
                self._history.stop()

    def _end(self) -> None:
        if self._final is None:
            if self._closing is not None:
                self._closing(self._number)
            self._final = _native.stop_watch(self._number)
            _teller.forget(self._number)
            if self._reporter is not None:
                self._reporter.finish(self._final)

    def _at_exit(self) -> None:
        self._end()
        if self._farewell is not None:
            self._farewell(self)

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "off" if OFF else "running" if self._final is None else "stopped"
        return f"<Watch {state}, {len(self.leaks)} leaks>"


def warn_tensor_cycles(
    *,
    devices: Devices | None = None,
    report_dir: StrPath | None = None,
    ignore: Sequence[str] = (),
    record_history: bool | None = None,
    redact: bool = False,
) -> Watch:
    """Log a warning whenever the garbage collector frees a tensor that only a cycle kept alive.

    Call it once, at training start. Each distinct leak is reported once, on the logger
    ``cyclescope``, with an HTML page in ``report_dir``; later occurrences are counted, and
    summed up when the program ends. What is not given comes from the :func:`settings`.

    With the variable ``CYCLESCOPE_OFF`` set, every function of cyclescope does nothing and returns
    an empty result. This one returns a watch that is stopped already.

    Args:
        devices: Which memory to watch: ``"cuda"`` (the default), ``"any"`` (host memory too, for
            machines without a GPU), a single device such as ``"cuda:0"``, or a list.
        report_dir: Where pages go; it is made if it does not exist. By default a new folder among
            the temporary files, made when there is something to write.
        ignore: Leaks not to tell of, by signature (:attr:`Leak.signature`), name of the pattern
            (:attr:`Leak.pattern`), name of the known leak, or library (``"torch"``: every leak
            that :attr:`CycleReport.library` would list for it). They are not counted either, in
            :attr:`Watch.leaks` or anywhere else.
        record_history: Have PyTorch record the stack of each allocation on a GPU, some microseconds
            each, so that the first report of each leak says what allocated its tensors.
        redact: Leave out of the reports what the program's data is: dictionary keys, names that
            stand in no source code, folders, and the machine's name. Names of classes, functions,
            attributes and variables stay. Holds for all that cyclescope says in the process from
            then on: of other watches and checks, :func:`heap`, :func:`why_alive`,
            :class:`LeakMonitor` and :func:`on_oom` too.

    Raises:
        ValueError: If ``devices`` names no device, ``ignore`` is not a list of names, or a setting
            is wrong.
        OSError: If ``report_dir`` cannot be written to.
    """
    configured = settings()
    if redact:
        _native.redact()
    way_out = "Pass warn_tensor_cycles(devices='any')"
    names, ignored = resolve(devices, ignore, "cuda", way_out)
    if OFF:
        return Watch(names, lambda _: None, once_per_leak=True)
    from cyclescope._reporter import Reporter

    reporter = Reporter(configured.report_dir if report_dir is None else report_dir)

    def warn(report: CycleReport) -> None:
        page = reporter.write(report)
        for leak in report.leaks:
            _teller.logger.warning("%s%s", leak, f" · page: {page}" if page else "")

    watch = Watch(
        names,
        warn,
        once_per_leak=True,
        ignore=ignored,
        farewell=_summary,
        closing=reporter.complete,
        reporter=reporter,
        record_history=configured.record_history if record_history is None else record_history,
    )
    _warners.add(watch)
    return watch


_warners: weakref.WeakSet[Watch] = weakref.WeakSet()


def running_warner() -> Watch | None:
    """A watch of :func:`warn_tensor_cycles` that has not been stopped, if there is one."""
    return next((watch for watch in _warners if watch.is_running), None)


# A forked child inherits the objects, but none of the watches.
if not OFF and hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_warners.clear)


def observe_tensor_cycles(
    callback: Callable[[CycleReport], object],
    *,
    devices: Devices | None = None,
    ignore: Sequence[str] = (),
    record_history: bool | None = None,
    redact: bool = False,
) -> Watch:
    """Call ``callback`` with a report whenever a collection frees tensors that cycles kept alive.

    The callback runs on a thread of cyclescope's own, just after the collection, and may do
    anything. What it raises is logged.

    Args:
        callback: Called with a :class:`CycleReport`.
        devices: Which memory to watch; see :func:`warn_tensor_cycles`.
        ignore: Leaks not to tell of; see :func:`warn_tensor_cycles`.
        record_history: As for :func:`warn_tensor_cycles`.
        redact: As for :func:`warn_tensor_cycles`.

    Raises:
        TypeError: If ``callback`` cannot be called.
        ValueError: If ``devices`` names no device, ``ignore`` is not a list of names, or a setting
            is wrong.
    """
    if not callable(callback):
        raise TypeError(f"callback must be a function of one report, not {callback!r}")
    configured = settings()
    if redact:
        _native.redact()
    way_out = "Pass observe_tensor_cycles(devices='any')"
    names, ignored = resolve(devices, ignore, "cuda", way_out)

    def listener(report: CycleReport) -> None:
        callback(report)

    return Watch(
        names,
        listener,
        once_per_leak=False,
        ignore=ignored,
        record_history=configured.record_history if record_history is None else record_history,
    )


def resolve(
    devices: Devices | None, ignore: Sequence[str], default: str, way_out: str
) -> tuple[list[str], list[str]]:
    """What to look at and what to leave out, by the arguments or else the settings.

    Says once, with the ``way_out``, if nothing can be found there.

    Raises:
        ValueError: If ``devices`` or ``ignore``, or a setting, is wrong.
    """
    configured = settings()
    names = configured.devices_or(devices, default)
    ignored = [*configured.ignore, *ignored_names(ignore)]
    _say_if_blind(names, way_out)
    return names, ignored


_said = False


def blindness(names: list[str]) -> str | None:
    """Why nothing can be found: only GPUs are asked for, and there can be none; else None.

    Initialises nothing, so a driver that has no device to offer is not noticed.
    """
    if any(not name.startswith("cuda") for name in names):
        return None
    torch = sys.modules.get("torch")
    if getattr(getattr(torch, "version", None), "hip", None) is not None:
        return None
    if not _native.cuda_driver_present():
        return "no CUDA driver on this machine"
    # CUDA takes the devices of the list up to the first that it does not know, when it begins.
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    begun = getattr(sys.modules.get("torch.cuda"), "is_initialized", bool)()
    if visible is not None and not begun and visible.strip()[:1] in ("", "-"):
        return f"CUDA_VISIBLE_DEVICES is {visible!r}, which hides every GPU"
    return None


def _say_if_blind(names: list[str], way_out: str) -> None:
    """Say once that there is no GPU, where only GPUs are looked at."""
    global _said
    if not OFF and not _said and (reason := blindness(names)) is not None:
        _said = True
        _teller.logger.warning(
            "%s, so there can be no CUDA tensors to find. "
            "%s to look at tensors in host memory too.",
            reason,
            way_out,
        )


def _summary(watch: Watch) -> None:
    leaks = watch.leaks
    if not leaks:
        return
    total = sum(leak.count for leak in leaks)
    lines = [
        f"{len(leaks)} distinct tensor leaks through reference cycles, {total} occurrences:"
        if len(leaks) > 1
        else f"1 tensor leak through a reference cycle, {total} occurrences:"
    ]
    lines += [
        f"  {leak.count} × {leak.summary} [{leak.signature}], "
        f"{leak.bytes / 2**20:,.1f} MiB in all, at most {leak.largest / 2**20:,.1f} MiB at a time"
        for leak in leaks[:10]
    ]
    if len(leaks) > 10:
        lines.append(f"  and {len(leaks) - 10} more")
    _teller.logger.warning("%s", "\n".join(lines))
