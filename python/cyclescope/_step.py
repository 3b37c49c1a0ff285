"""Collections at fixed steps of the training loop."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from cyclescope import _log, _native, _warner
from cyclescope._devices import Devices
from cyclescope._native import CycleReport
from cyclescope._off import OFF
from cyclescope._selection import StrPath, ignored_names
from cyclescope._settings import check_every, settings
from cyclescope._system import generation_stats, perf_counter

MIB = 2**20
OLDEST = 2


@dataclass(frozen=True)
class StepReport:
    """The result of one collection by :func:`step`.

    Attributes:
        step: The number of steps so far.
        since: The step of the previous collection.
        report: What this collection freed.
        bytes_held: Bytes that cycles held in the steps since then, whichever collection freed them.
        bytes_aged: Bytes of garbage in the oldest generation, which the loop's own collections
            never free.
        seconds: How long the loop waited.
    """

    step: int
    since: int
    report: CycleReport
    bytes_held: int
    bytes_aged: int
    seconds: float

    def scalars(self) -> dict[str, float]:
        """The figures as scalars for TensorBoard and similar tools."""
        return {
            "cyclescope/bytes_held": self.bytes_held,
            "cyclescope/distinct_leaks": len(self.report.leaks),
            "cyclescope/bytes_aged": self.bytes_aged,
            "cyclescope/seconds": self.seconds,
        }


class StepCollector:
    """Collects garbage every N steps and reports what reference cycles held.

    Use it in loops that disable automatic collection, where nothing else would free a cycle. It
    counts steps, so ranks that call it once per step all collect in the same step.

    Args:
        every: Number of steps between two collections; by default 100, or as in the
            :func:`settings`.
        devices: Which memory to check; see :func:`warn_tensor_cycles`.
        report_dir: Folder for the HTML pages; see :func:`warn_tensor_cycles`.
        ignore: Leaks to ignore; see :func:`warn_tensor_cycles`.

    Raises:
        ValueError: If an argument or a setting is invalid.
        OSError: If ``report_dir`` is not writable.
    """

    def __init__(
        self,
        *,
        every: int | None = None,
        devices: Devices | None = None,
        report_dir: StrPath | None = None,
        ignore: Sequence[str] = (),
    ) -> None:
        configured = settings()
        self.every = configured.every if every is None else check_every(every)
        """Number of steps between two collections."""
        self._devices = configured.devices_or(devices)
        self._ignore = [*configured.ignore, *ignored_names(ignore)]
        self._steps = 0
        self._collected_at = 0
        self._said_aged = False
        self._is_stopped = False
        self._start = partial(
            _warner.warn_tensor_cycles,
            devices=self._devices,
            report_dir=report_dir,
            ignore=ignore,
        )
        self._join()
        self._held = self._total()
        self._collections = _collections()

    def step(self) -> StepReport | None:
        """Count a step. Every N steps, collect and return the result; otherwise None."""
        if OFF:
            return None
        self._steps += 1
        if self._steps % self.every:
            return None
        return self._collect()

    def stop(self) -> None:
        """Stop the watch if this object started it."""
        self._is_stopped = True
        if self._own:
            self._watch._release()

    def _join(self) -> None:
        """Count by the watch that runs, or by a new one."""
        # If the program has started a watch, that one already warns and counts.
        running = _warner.running_warner()
        self._own = running is None
        self._watch = running or self._start()

    def _join_again(self) -> None:
        """Go on with another watch if the program has stopped the one that counted."""
        if self._watch.is_running or self._is_stopped:
            return
        # What that one has counted since the last collection still counts.
        self._held -= self._total()
        self._join()

    def _collect(self) -> StepReport:
        self._join_again()
        started = perf_counter()
        aged = None
        if self._loop_collects_young_only():
            # All garbage, and what the loop's own collections would find of it, before ours.
            looks = [_native.look(self._devices, self._ignore, it) for it in (OLDEST, OLDEST - 1)]
            aged = looks[0].bytes_held - looks[1].bytes_held
        report = _native.find(self._devices, self._ignore)
        aged = max(0, min(aged or 0, report.bytes_held))
        seconds = perf_counter() - started
        total = self._total()
        found = StepReport(
            step=self._steps,
            since=self._collected_at,
            report=report,
            bytes_held=total - self._held if self._watch.is_running else report.bytes_held,
            bytes_aged=aged,
            seconds=seconds,
        )
        self._held = total
        self._collected_at = self._steps
        self._collections = _collections()
        self._tell(found)
        return found

    def _tell(self, found: StepReport) -> None:
        if found.bytes_held:
            _log.info(
                "step %d: reference cycles held %.1f MiB in the %d steps since the last collection",
                found.step,
                found.bytes_held / MIB,
                found.step - found.since,
            )
        if found.bytes_aged and not self._said_aged:
            self._said_aged = True
            _log.warning(
                "step %d: %.1f MiB of garbage had aged into the oldest generation, which "
                "collections of younger generations, such as gc.collect(1), never free: "
                "call gc.collect(), or leave collecting to cyclescope.step()",
                found.step,
                found.bytes_aged / MIB,
            )

    def _loop_collects_young_only(self) -> bool:
        since = [
            now - before for now, before in zip(_collections(), self._collections, strict=True)
        ]
        return len(since) > OLDEST and any(since[:OLDEST]) and not since[OLDEST]

    def _total(self) -> int:
        return _native.total_bytes(self._watch.leaks)


def _collections() -> list[int]:
    """The number of collections so far, by generation."""
    return [generation["collections"] for generation in generation_stats()]


_collector: StepCollector | None = None
_lock = threading.Lock()


def _after_fork_in_child() -> None:
    global _collector, _lock
    _collector = None
    _lock = threading.Lock()


if not OFF and hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def step(
    *,
    every: int | None = None,
    devices: Devices | None = None,
    report_dir: StrPath | None = None,
    ignore: Sequence[str] = (),
) -> StepReport | None:
    """Call it once per training step: it collects garbage every N steps and reports leaks.

    Use it in loops that disable automatic collection (``gc.disable()``), where nothing else would
    free a cycle. Ranks that call it once per step all collect in the same step. New leaks are
    logged as by :func:`warn_tensor_cycles`.

    The arguments of the first call apply to all later calls; see :class:`StepCollector`.

    Returns:
        The result in a step that collected, otherwise None.
    """
    global _collector
    collector = _collector
    if collector is None:
        with _lock:
            if _collector is None:
                _collector = StepCollector(
                    every=every, devices=devices, report_dir=report_dir, ignore=ignore
                )
            collector = _collector
    return collector.step()
