"""Watch a program for tensors that reference cycles keep alive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from cyclescope import _history, _log, _native, _teller
from cyclescope._devices import Devices, blindness
from cyclescope._native import CycleReport, LeakTally
from cyclescope._off import OFF
from cyclescope._selection import ignored_names, redact_if
from cyclescope._settings import settings

if TYPE_CHECKING:
    from cyclescope._reporter import Reporter

STOP_SECONDS = 30.0
"""How long to wait for reports, which a slow machine must not lose: the first may read a large
memory history."""


class Watch:
    """A running watch. Stop it with :meth:`stop`, or use it as a context manager.

    With ``CYCLESCOPE_OFF`` set it is created stopped; see :func:`warn_tensor_cycles`.
    """

    _final: list[LeakTally] | None = None
    """The tallies, once the watch has stopped."""

    def __init__(
        self,
        devices: str | Sequence[str],
        listener: _teller.Listener,
        *,
        once_per_leak: bool,
        ignore: Sequence[str] = (),
        farewell: Callable[[Watch], None] | None = None,
        closing: Callable[[int], None] | None = None,
        record_history: bool = False,
        keep_all: bool = False,
        min_bytes: tuple[int, int] = (0, 0),
        reporter: Reporter | None = None,
    ) -> None:
        self._reporter = reporter
        # Checks say themselves what they have not seen.
        self._says_unseen = not keep_all
        if OFF:
            self._final = []
            return
        self._history = _history.History() if record_history else None
        names = (devices,) if isinstance(devices, str) else tuple(devices)
        self._number = _native.start_watch(
            names, once_per_leak, tuple(ignore), keep_all, *min_bytes
        )
        self._farewell = farewell
        self._closing = closing

        def told(report: CycleReport) -> None:
            history = self._history
            listener(report if history is None else history.explain(report))

        _teller.listen(self._number, told, self._at_exit)

    @property
    def is_running(self) -> bool:
        """True until the watch is stopped or the program ends."""
        return self._final is None

    @property
    def leaks(self) -> list[LeakTally]:
        """The leaks seen so far, sorted by bytes held, largest first."""
        if self._final is not None:
            return self._final
        return _native.tallies(self._number)

    @property
    def report(self) -> CycleReport | None:
        """One report of all leaks: the first occurrence of each, with its current counts.

        None if nothing leaked, and for :func:`observe_tensor_cycles`, which keeps no reports.
        """
        return (
            None
            if self._reporter is None
            else self._reporter.seen(self.leaks, self._running_number)
        )

    @property
    def _running_number(self) -> int | None:
        return self._number if self._final is None else None

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until everything found so far has been reported.

        Returns:
            False if it takes longer than ``timeout`` seconds.
        """
        if not OFF and self._says_unseen:
            say_unseen()
        return OFF or _teller.flush(timeout)

    def stop(self) -> None:
        """Report what has been found and stop the watch. Stopping twice does nothing."""
        if self._final is None:
            self.flush(STOP_SECONDS)
            self._end()
            if self._history is not None:
                self._history.stop()

    def _release(self) -> None:
        """What the end of a ``with`` block does."""
        self.stop()

    def _end(self) -> None:
        if self._final is None:
            if self._closing is not None:
                self._closing(self._number)
            self._final = _native.stop_watch(self._number)
            if self._says_unseen:
                say_unseen()
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
        self._release()

    def __repr__(self) -> str:
        state = "off" if OFF else "running" if self._final is None else "stopped"
        count = len(self.leaks)
        return f"<Watch {state}, {count} leak{'s' * (count != 1)}>"


def observe_tensor_cycles(
    callback: Callable[[CycleReport], object],
    *,
    devices: Devices | None = None,
    ignore: Sequence[str] = (),
    record_history: bool | None = None,
    redact: bool = False,
) -> Watch:
    """Call ``callback`` with a report whenever a collection frees tensors that cycles kept alive.

    The callback runs on a thread of cyclescope, shortly after the collection, and may run any
    code. Exceptions that it raises are logged.

    Args:
        callback: A function that takes a :class:`CycleReport`.
        devices: Which memory to watch; see :func:`warn_tensor_cycles`.
        ignore: Leaks to ignore; see :func:`warn_tensor_cycles`.
        record_history: See :func:`warn_tensor_cycles`.
        redact: See :func:`warn_tensor_cycles`.

    Raises:
        TypeError: If ``callback`` is not callable, or ``redact`` neither true nor false.
        ValueError: If ``devices`` names no device, ``ignore`` is not a list of names, or a setting
            is invalid.
    """
    if not callable(callback):
        raise TypeError(f"callback must be a function that takes a report, not {callback!r}")
    configured = settings()
    redact_if(redact)
    way_out = "Pass observe_tensor_cycles(devices='any')"
    names, ignored = resolve(devices, ignore, way_out)

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
    devices: Devices | None, ignore: Sequence[str], way_out: str
) -> tuple[list[str], list[str]]:
    """The devices to check and the leaks to ignore, from the arguments or else the settings.

    Logs what is checked, as :func:`say_what_is_checked` does.

    Raises:
        ValueError: If ``devices``, ``ignore`` or a setting is invalid.
    """
    names, ignored = selected(devices, ignore)
    say_what_is_checked(names, devices, way_out)
    return names, ignored


def selected(devices: Devices | None, ignore: Sequence[str]) -> tuple[list[str], list[str]]:
    """The devices to check and the leaks to ignore, from the arguments or else the settings.

    Raises:
        ValueError: If ``devices``, ``ignore`` or a setting is invalid.
    """
    configured = settings()
    return configured.devices_or(devices), [*configured.ignore, *ignored_names(ignore)]


def at_least(min_bytes: int, report: CycleReport) -> CycleReport:
    """The report without leaks that held less."""
    large = [leak.signature for leak in report.leaks if leak.bytes_held >= min_bytes]
    return report if len(large) == len(report.leaks) else _native.select(report, large)


def unseen() -> str | None:
    """A sentence about collections that no watch has seen; None if there were none."""
    return _missed(
        _native.unseen_collections(),
        "seen, because another part of the program changed gc.callbacks, such as by "
        "gc.callbacks.clear()",
    )


def uninspected() -> str | None:
    """A sentence about collections that a debug flag kept from being inspected; None without."""
    return _missed(
        _native.uninspected_collections(),
        "inspected, because gc.DEBUG_STATS or gc.DEBUG_COLLECTABLE was set",
    )


def _missed(number: int | None, why: str) -> str | None:
    if not number:
        return None
    collections, they = ("collection was", "it") if number == 1 else ("collections were", "they")
    return f"{number:,} garbage {collections} not {why}: leaks that {they} freed are not known"


_unseen_said = False


def say_unseen(say: Callable[[str], object] | None = None) -> bool:
    """Say once that there were collections which no watch has seen, or by a function in any case.

    Returns:
        True if there were any.
    """
    global _unseen_said
    sentence = unseen()
    if sentence is not None and say is not None:
        say(sentence)
    elif sentence is not None and not _unseen_said:
        _log.warning("%s", sentence)
    _unseen_said |= sentence is not None
    return sentence is not None


_said: set[str] = set()
"""What was said of devices, each once: that host memory is checked, that nothing can be found."""


def say_what_is_checked(names: list[str], devices: Devices | None, way_out: str) -> None:
    """Warn once if nothing can be found, or if host memory is checked for want of an accelerator.

    Args:
        names: The devices that are checked.
        devices: The argument, which may have left the choice open.
        way_out: What to do if only GPU memory is checked and there is no GPU.
    """
    if OFF:
        return
    by_default = devices is None and settings().devices is None
    said = kind = None
    if by_default and "any" in names and (reason := blindness(["cuda"])) is not None:
        kind = "host"
        said = (
            f"{_capital(reason)}, so tensors in host memory are checked. To leave them out, pass "
            "devices='gpu'."
        )
    elif (reason := blindness(names)) is not None:
        kind = "nothing"
        said = (
            f"{_capital(reason)}, so no tensors can be found on {', '.join(names)}. {way_out} to "
            "check tensors in host memory too."
        )
    if kind is not None and kind not in _said:
        _said.add(kind)
        _log.warning("%s", said)


def _capital(reason: str) -> str:
    return reason[:1].upper() + reason[1:]
