"""The watch that warns: one in a process, shared by all calls of :func:`warn_tensor_cycles`."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from cyclescope import _fields, _history, _log, _native, _teller
from cyclescope._devices import Devices
from cyclescope._files import folder_named
from cyclescope._native import CycleReport
from cyclescope._off import OFF
from cyclescope._selection import StrPath, redact_if
from cyclescope._settings import check_min_bytes, settings
from cyclescope._suggest import enumerated
from cyclescope._system import absolute, freeze_count
from cyclescope._watch import STOP_SECONDS, Watch, say_what_is_checked, selected

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

HOST = ("cpu", "pinned", "shared")
"""The devices that are host memory."""

MIN_HOST_BYTES = 2**20
"""A leak of host memory is warned of once it has held this many bytes, if nothing else is said."""


@dataclass(frozen=True)
class Arguments:
    """What a call of :func:`warn_tensor_cycles` asks for, with the settings filled in."""

    devices: frozenset[str]
    ignore: frozenset[str]
    report_dir: str | None
    record_history: bool
    min_bytes: int | None

    @property
    def native(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[int, int]]:
        """The devices, what to ignore, and the least bytes of host and device memory."""
        least = self.min_bytes
        bytes_ = (MIN_HOST_BYTES, 0) if least is None else (least, least)
        return tuple(sorted(self.devices)), tuple(sorted(self.ignore)), bytes_

    def differing(self, other: Arguments) -> list[str]:
        """The names of the arguments that another call gives otherwise."""
        names = (field.name for field in fields(self))
        return [name for name in names if getattr(self, name) != getattr(other, name)]


class Warner(Watch):
    """The watch of :func:`warn_tensor_cycles`."""

    def __init__(self, wanted: Arguments) -> None:
        # Its dependencies are not needed before something is watched.
        from cyclescope._reporter import Reporter

        self._folder = Reporter(None if OFF else wanted.report_dir)
        self._now = wanted
        self._calls = [wanted]
        """The arguments of the calls that share this watch, but for `with` blocks that ended."""
        self._command_line: Collection[str] | None = None
        """The arguments that ``cyclescope run`` was given; None if the program runs by itself."""
        self._said: set[str] = set()
        devices, ignore, least = wanted.native
        super().__init__(
            list(devices),
            self._warn,
            once_per_leak=True,
            ignore=ignore,
            farewell=_summary,
            closing=self._folder.complete,
            reporter=self._folder,
            record_history=wanted.record_history,
            min_bytes=least,
        )

    @property
    def devices(self) -> list[str]:
        """Which memory it watches now."""
        return sorted(self._now.devices)

    @property
    def ignored(self) -> list[str]:
        """What it leaves out now."""
        return sorted(self._now.ignore)

    @property
    def is_of_program(self) -> bool:
        """False if ``cyclescope run`` started it."""
        return self._command_line is None

    def join(self, wanted: Arguments, given: Collection[str]) -> None:
        """A further call, which gives these arguments. They apply from now on.

        Raises:
            OSError: If its ``report_dir`` is not writable.
        """
        if self._command_line is not None:
            wanted = self._under_command_line(wanted, given)
        # The first call of a program adds to the command line what that leaves open.
        is_again = self._command_line is None or len(self._calls) > 1
        changed = self._now.differing(wanted)
        self._change(wanted)
        self._calls.append(wanted)
        if changed and is_again:
            self._say_once(
                f"warn_tensor_cycles() was called again with {_again(changed)} from now on. "
                "There is one such watch in a process."
            )

    def belong_to_command(
        self, given: Collection[str], also: Callable[[CycleReport], object] | None
    ) -> None:
        """Go on until the program ends, with these arguments as they are now.

        Args:
            given: The arguments that the program cannot change.
            also: Is given all that was found whenever there is a new leak.
        """
        self._command_line = frozenset(given)
        self._folder.also = also

    def stop(self) -> None:
        if self._command_line is None:
            self._calls.clear()
            super().stop()
        elif self.is_running:
            self.flush(STOP_SECONDS)
            del self._calls[1:]
            self._change(self._calls[0])

    def _release(self) -> None:
        if len(self._calls) < 2:
            self.stop()
            return
        self.flush(STOP_SECONDS)
        self._calls.pop()
        self._change(self._calls[-1])

    def _under_command_line(self, wanted: Arguments, given: Collection[str]) -> Arguments:
        """The arguments of a call in the program, where the command line says nothing else."""
        first = self._calls[0]
        differing = set(wanted.differing(first)) - {"ignore"}
        lost = sorted(differing.intersection(given, self._command_line or ()))
        if lost:
            options = " and ".join(f"--{name.replace('_', '-')}" for name in lost)
            apply = "apply" if len(lost) > 1 else "applies"
            self._say_once(
                f"The command line of `cyclescope run` gives {options}, which {apply} instead of "
                "what the program passes to warn_tensor_cycles()."
            )
        kept = {name: getattr(first, name) for name in [*lost, *(differing.difference(given))]}
        return replace(wanted, **kept, ignore=wanted.ignore | first.ignore)

    def _change(self, wanted: Arguments) -> None:
        now = self._now
        if wanted == now or not self.is_running:
            return
        if wanted.report_dir != now.report_dir:
            self._folder.move(wanted.report_dir)
        devices, ignore, least = wanted.native
        forgotten = self._folder.forget(list(ignore))
        _native.change_watch(self._number, devices, ignore, *least, tuple(forgotten))
        if wanted.record_history and self._history is None:
            self._history = _history.History()
        elif not wanted.record_history and self._history is not None:
            self._history.stop()
            self._history = None
        self._now = wanted

    def _say_once(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            _log.warning("%s", sentence)

    def look_at_frozen(self) -> None:
        """Warn of garbage that no collection frees any more, because ``gc.freeze()`` excluded it.

        To be called after a full collection: what that has freed is counted.
        """
        if not (self.is_running and freeze_count()):
            return
        devices, ignore, (host, device) = self._now.native
        found = _native.find(list(devices), list(ignore), True)
        large = [
            leak.signature
            for leak in found.leaks
            if leak.frozen
            and leak.bytes_held
            >= (host if all(it.device in HOST for it in leak.buffers) else device)
        ]
        if large:
            # A log handler may raise, here as on the thread that delivers reports.
            with contextlib.suppress(Exception):
                self._warn(_native.select(found, large))

    def _warn(self, report: CycleReport) -> None:
        page = self._folder.write(report)
        _teller.keep_fresh(self._number, self._refresh)
        end = f"\n  Found during the import of {report.importing}." if report.importing else ""
        end += f"\n  Page: {page}" if page else ""
        for leak in report.leaks:
            facts = _fields.of_leak(leak, report, page)
            _log.warning("%s%s", _log.fitting(leak.to_text()), end, fields=facts)

    def _refresh(self) -> None:
        if self.is_running:
            self._folder.refresh(self._number, self.leaks)


_current: Warner | None = None
# Reentrant: a finalizer may start a watch in the middle of starting one.
_lock = threading.RLock()


def warn_tensor_cycles(
    *,
    devices: Devices | None = None,
    report_dir: StrPath | None = None,
    ignore: Sequence[str] = (),
    record_history: bool | None = None,
    redact: bool = False,
    min_bytes: int | None = None,
) -> Watch:
    """Log a warning whenever the garbage collector frees a tensor that only a cycle kept alive.

    Call it once, at training start. Each distinct leak is reported once, on the logger
    ``cyclescope``, with an HTML page in ``report_dir``. Later occurrences are counted and
    summarized when the program ends. Arguments left out default to the :func:`settings`.

    A process has one such watch, so each leak is reported once. A further call returns the running
    watch. Equal arguments change nothing. Different ones replace the earlier, which is logged once.
    At the end of a ``with`` block the earlier arguments apply again, and the watch goes on if it
    was running before the block. :meth:`Watch.stop` stops it for all callers. Under ``cyclescope
    run``, the watch goes on until the program ends, and the options of the command line take
    precedence.

    The record of each finding carries its facts as a dictionary, in the attribute ``cyclescope``,
    for structured logging. If the configuration of logging has disabled this logger by accident
    (``disable_existing_loggers``), warnings go to standard error instead.

    If the environment variable ``CYCLESCOPE_OFF`` is set, every function of cyclescope does nothing
    and returns an empty result. This function then returns a stopped watch.

    Args:
        devices: Which memory to watch: ``"gpu"`` (any accelerator), ``"any"`` (host memory too),
            the name of a device such as ``"cuda:0"``, ``"cuda"`` or ``"pinned"``, a
            ``torch.device``, a ``jax.Device``, or a list of these. By default ``"gpu"``, or
            ``"any"`` on a machine without an accelerator, which is logged once.
        report_dir: Folder for the HTML pages, created if it does not exist. By default, a new
            temporary folder, created when there is something to write.
        ignore: Leaks to ignore: signatures (:attr:`Leak.signature`), pattern names
            (:attr:`Leak.pattern`), names of known leaks, or libraries (``"torch"`` ignores every
            leak of that library in :attr:`CycleReport.library`). Ignored leaks are not counted
            either.
        record_history: Have PyTorch record the stack of each GPU allocation, at a cost of some
            microseconds each. The first report of each leak then says what allocated its tensors.
        redact: Leave the program's data out of reports: dictionary keys, names that do not occur
            in source code, folders, and the host name. Names of classes, functions, attributes
            and variables stay. Redaction applies to everything that cyclescope reports from then
            on in this process, including :func:`heap`, :func:`why_alive`, :class:`LeakMonitor`
            and :func:`on_oom`.
        min_bytes: Warn of a leak once it has held this many bytes in total. By default 1 MiB for
            host memory, since programs and libraries often leave small arrays in cycles, and 0 for
            device memory. Smaller leaks are counted in :attr:`Watch.leaks`.

    Raises:
        ValueError: If ``devices`` names no device, ``ignore`` is not a list of names,
            ``min_bytes`` is not a number of bytes, ``report_dir`` cannot be a folder's name, or a
            setting is invalid.
        TypeError: If ``report_dir`` is no path, or ``record_history`` or ``redact`` neither true
            nor false.
        OSError: If ``report_dir`` is not writable.
    """
    configured = settings()
    redact_if(redact)
    names, ignored = selected(devices, ignore)
    least = configured.min_bytes if min_bytes is None else check_min_bytes(min_bytes)
    folder = configured.report_dir if report_dir is None else report_dir
    if not isinstance(record_history, bool | None):
        raise TypeError(f"record_history must be True, False or None, not {record_history!r}")
    recorded = configured.record_history if record_history is None else record_history
    wanted = Arguments(
        devices=frozenset(names),
        ignore=frozenset(ignored),
        report_dir=None if folder is None else absolute(folder_named(folder)),
        record_history=bool(recorded),
        min_bytes=least,
    )
    left_out = {
        "devices": devices is None,
        "report_dir": report_dir is None,
        "record_history": record_history is None,
        "min_bytes": min_bytes is None,
    }
    watch = _watch_for(wanted, [name for name in left_out if not left_out[name]])
    chosen = devices if watch.is_of_program else watch.devices
    say_what_is_checked(
        watch.devices, chosen, "Pass devices='any' (on the command line, --devices any)"
    )
    return watch


def _watch_for(wanted: Arguments, given: Collection[str]) -> Warner:
    global _current
    if OFF:
        return Warner(wanted)
    if (running := running_warner()) is not None:
        # What was found until now is told by the earlier arguments.
        running.flush()
    with _lock:
        running = running_warner()
        if running is None:
            _current = running = Warner(wanted)
        else:
            running.join(wanted, given)
        return running


def _again(changed: Sequence[str]) -> str:
    """What a further call gives otherwise, as a part of a sentence."""
    if len(changed) == 1:
        return f"another value of {changed[0]}, which applies"
    return f"other values of {enumerated(changed, 'and')}, which apply"


def running_warner() -> Warner | None:
    """The running watch of :func:`warn_tensor_cycles`, if there is one."""
    return _current if _current is not None and _current.is_running else None


def _after_fork_in_child() -> None:
    # The child inherits the object, but not the watch.
    global _current, _lock
    _current = None
    _lock = threading.RLock()


if not OFF and hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _summary(watch: Watch) -> None:
    import textwrap

    leaks = [leak for leak in watch.leaks if leak.reported]
    if not leaks:
        return
    total = sum(leak.count for leak in leaks)
    several = len(leaks) > 1
    lines = [
        f"{len(leaks)} leak{'s' * several}, seen {total} time{'s' * (total > 1)}"
        f"{'; memory that several leaks held counts for each of them' * several}:"
    ]
    for leak in leaks[:10]:
        head = f"  {leak.count} × "
        indent = " " * len(head)
        lines += [
            textwrap.fill(
                leak.summary,
                100,
                initial_indent=head,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            ),
            f"{indent}{_native.human_bytes(leak.bytes)} in total, at most "
            f"{_native.human_bytes(leak.largest)} at once [{leak.signature}]",
        ]
    if len(leaks) > 10:
        lines.append(f"  and {len(leaks) - 10} more")
    small = [leak for leak in watch.leaks if not leak.reported]
    if small:
        lines.append(
            f"Not reported, because smaller than min_bytes: {len(small)} more, "
            f"{_native.total_bytes(small):,} bytes in total"
        )
    _log.warning("%s", "\n".join(lines), fields=_fields.of_summary(watch.leaks))
