"""Collections when device memory is nearly full and cycles are known to hold some of it.

PyTorch's allocator does not know about Python's garbage, and the garbage collector does not know
about device memory, so a program can run out of memory although much of it is garbage
(pytorch/pytorch#50185).
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from cyclescope import _log, _native, _warner
from cyclescope._imported import imported_torch
from cyclescope._live import reading
from cyclescope._live.imports import Waiting
from cyclescope._live.reading import Torch
from cyclescope._live.redaction import shown_error
from cyclescope._off import OFF
from cyclescope._poller import Poller
from cyclescope._settings import check_number
from cyclescope._system import collect, monotonic, now

INTERVAL = 0.1
"""Seconds between two reads of the allocator's counters."""

REST = 1.0
"""Minimum seconds between two collections."""

REST_FACTOR = 20
"""Minimum pause after a collection, as a multiple of its duration."""

MAX_REST = 60.0
"""Maximum pause. It doubles up to this while collections free too little."""

WORTH = 0.01
"""Fraction of the device's memory that a collection must free to be worthwhile."""

LOOK_SECONDS = 30.0
"""Seconds between searches for cycles, without collecting, if no watch has seen any."""

MAX_KEPT = 1_000
MIB = 2**20


@dataclass(frozen=True)
class Relief:
    """One collection under memory pressure.

    Attributes:
        time: Time of the collection, in seconds since 1970.
        device: The device that was nearly full.
        allocated: Bytes allocated on the device before the collection.
        freed: Bytes that the collection freed on it.
        seconds: How long the collection paused the program.
    """

    time: float
    device: str
    allocated: int
    freed: int
    seconds: float


class PressureRelief:
    """Collects under memory pressure until :meth:`stop` is called. Also a context manager."""

    def __init__(self, fraction: float) -> None:
        self.fraction = fraction
        """The fraction of a device that must be allocated."""
        self.collections: list[Relief] = []
        """The latest thousand collections, oldest first."""
        self.looks = 0
        """Number of searches for cycles, made when no watch had seen any."""
        self._next = 0.0
        self._next_look = 0.0
        self._rest = REST
        self._scheduled = False
        self._is_stopped = False
        self._poller: Poller | None = None
        self._waiting = Waiting(self._begin)
        _handles.append(self)

    @property
    def bytes_freed(self) -> int:
        """Bytes freed by all collections."""
        return sum(each.freed for each in self.collections)

    def stop(self) -> None:
        """Stop, and log a summary. Stopping twice does nothing."""
        if self._is_stopped:
            return
        self._is_stopped = True
        if self._poller is not None:
            self._poller.stop()
        self._waiting.stop()
        if self in _handles:
            _handles.remove(self)
        if self.collections:
            _log.info(
                "%d collections under memory pressure freed %.1f MiB in %.2f s",
                len(self.collections),
                self.bytes_freed / MIB,
                sum(each.seconds for each in self.collections),
            )

    def __enter__(self) -> PressureRelief:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<PressureRelief at {self.fraction:.0%}, {len(self.collections)} collections>"

    def _begin(self, torch: Torch) -> None:
        if not reading.has_cuda(torch):
            _log.warning("collect_on_pressure has no effect: this PyTorch is built without CUDA")
            return
        self._poller = Poller(lambda: self._watch(torch), INTERVAL, "cyclescope-pressure")
        if self._is_stopped:
            # Meanwhile, on another thread.
            self._poller.stop()

    def _watch(self, torch: Torch) -> None:
        try:
            self._look(torch)
        except Exception as error:
            if self._poller is not None:
                self._poller.stop()
            _log.error("cyclescope: collect_on_pressure stopped: %s", shown_error(error))

    def _look(self, torch: Torch) -> None:
        """Schedule a collection if one is due. Runs on its own thread and makes no CUDA call."""
        now = monotonic()
        if self._scheduled or now < self._next or fullest(torch, self.fraction) is None:
            return
        if _known_cycles() or now >= self._next_look:
            self._scheduled = True
            _native.call_in_main_thread(self._relieve)

    def _relieve(self) -> None:
        """Runs on the main thread between two instructions, and raises nothing of its own."""
        try:
            torch = imported_torch()
            if not self._is_stopped and torch is not None:
                self._collect(torch)
        except (KeyboardInterrupt, SystemExit):
            raise  # by a signal handler of the program
        except BaseException as error:
            _log.error(
                "cyclescope: a collection under memory pressure failed: %s", shown_error(error)
            )
        finally:
            self._scheduled = False

    def _collect(self, torch: Torch) -> None:
        ordinal = fullest(torch, self.fraction)
        # Freeing memory would break a CUDA graph that is being captured. The next check is soon.
        if ordinal is None or reading.is_capturing(torch):
            return
        device = f"cuda:{ordinal}"
        if not _known_cycles():
            self.looks += 1
            self._next_look = monotonic() + LOOK_SECONDS
            if not _native.look([device]).bytes_held:
                return
        before = allocated(torch, ordinal)
        started = monotonic()
        collect()
        seconds = monotonic() - started
        freed = max(0, before - allocated(torch, ordinal))
        worth = freed >= WORTH * _total(torch, ordinal)
        self._rest = REST if worth else min(2 * self._rest, MAX_REST)
        self._next = monotonic() + max(self._rest, REST_FACTOR * seconds)
        self.collections.append(Relief(now(), device, before, freed, seconds))
        del self.collections[:-MAX_KEPT]
        _log.info(
            "%s was nearly full: a collection freed %.1f of %.1f MiB in %.0f ms",
            device,
            freed / MIB,
            before / MIB,
            seconds * 1e3,
        )


def collect_on_pressure(fraction: float = 0.9) -> PressureRelief:
    """Collect garbage when device memory is nearly full and cycles are known to hold some of it.

    A background thread reads the allocator's counters ten times a second, without calling CUDA.
    The collection runs on the main thread, between two bytecode instructions, and never while that
    thread captures a CUDA graph. Cycles are known if a watch, such as that of
    :func:`warn_tensor_cycles`, has seen some; without a watch, they are searched for first.
    Collections are at least a second apart, and at least twenty times their own duration. If they
    free almost nothing, the interval grows.

    A request that exceeds the free memory between two checks still fails.

    Args:
        fraction: Allocated fraction of a device, relative to what this process may use.

    Raises:
        ValueError: If ``fraction`` is not a number of more than 0 and at most 1.
    """
    return PressureRelief(check_number("fraction", fraction, at_most=1))


_handles: list[PressureRelief] = []


def fullest(torch: Torch, fraction: float) -> int | None:
    """The fullest device, if it is fuller than ``fraction``."""
    if not reading.is_using_cuda(torch):
        return None
    fill = {
        ordinal: allocated(torch, ordinal) / max(1.0, _total(torch, ordinal))
        for ordinal in range(torch.cuda.device_count())
    }
    ordinal = max(fill, key=lambda each: fill[each], default=None)
    return ordinal if ordinal is not None and fill[ordinal] >= fraction else None


def allocated(torch: Torch, ordinal: int) -> int:
    """Bytes that PyTorch's allocator has allocated on a device."""
    return int(torch._C._cuda_memoryStats(ordinal)["allocated_bytes"]["all"]["current"])


def _total(torch: Torch, ordinal: int) -> float:
    """Bytes of a device that this process may use, ignoring other processes."""
    total = float(torch.cuda.get_device_properties(ordinal).total_memory)
    share = getattr(torch._C, "_cuda_getMemoryFraction", None)
    allowed = None if share is None else reading.quietly(share, ordinal)
    return total * (1.0 if allowed is None else float(allowed))


def _known_cycles() -> bool:
    watch = _warner.running_warner()
    return watch is not None and any(leak.bytes for leak in watch.leaks)


def _after_fork_in_child() -> None:
    _handles.clear()


if not OFF and hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
