"""Collections when device memory is nearly full and cycles are known to hold some of it.

PyTorch's allocator knows nothing of Python's garbage, and the collector nothing of device memory,
so a program can run out of memory that is garbage already (pytorch/pytorch#50185).
"""

from __future__ import annotations

import gc
import os
import threading
import time
from dataclasses import dataclass

from cyclescope import _native, _teller, _watch
from cyclescope._live import reading
from cyclescope._live.imports import Waiting
from cyclescope._live.reading import Torch
from cyclescope._live.redaction import shown_error
from cyclescope._off import OFF

INTERVAL = 0.1
"""Seconds between two looks at the allocator's counters."""

REST = 1.0
"""Seconds between two collections at the least; and at the least so many times their own time:"""
REST_FACTOR = 20

MAX_REST = 60.0
"""A collection that frees next to nothing doubles the rest, up to this."""

WORTH = 0.01
"""Next to nothing is less than this part of the device's memory."""

LOOK_SECONDS = 30.0
"""Where no watch has seen cycles, they are looked for, without collecting, once in so long."""

MAX_KEPT = 1_000
MIB = 2**20


@dataclass(frozen=True)
class Relief:
    """One collection under pressure."""

    time: float
    """When, in seconds since 1970."""
    device: str
    """The device that was nearly full."""
    allocated: int
    """Bytes allocated on it before."""
    freed: int
    """Bytes that it had back afterwards."""
    seconds: float
    """How long the program waited."""


class PressureRelief:
    """Collects under memory pressure until it is stopped; also a context manager."""

    def __init__(self, fraction: float) -> None:
        self.fraction = fraction
        """How full a device must be."""
        self.collections: list[Relief] = []
        """What was done, oldest first; the latest thousand."""
        self.looks = 0
        """How often it was looked whether cycles hold memory, as no watch had said so."""
        self._next = 0.0
        self._next_look = 0.0
        self._rest = REST
        self._scheduled = False
        self._stopped = threading.Event()
        self._waiting = Waiting(self._begin)
        _handles.append(self)

    @property
    def bytes_freed(self) -> int:
        """By all collections together."""
        return sum(each.freed for each in self.collections)

    def stop(self) -> None:
        """End it, and say what it did. Stopping twice does nothing."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        self._waiting.stop()
        if self in _handles:
            _handles.remove(self)
        if self.collections:
            _teller.logger.info(
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
            _teller.logger.warning(
                "collect_on_pressure has no effect: this PyTorch is built without CUDA"
            )
            return
        threading.Thread(
            target=self._watch, args=(torch,), name="cyclescope-pressure", daemon=True
        ).start()

    def _watch(self, torch: Torch) -> None:
        while not self._stopped.wait(INTERVAL):
            try:
                self._look(torch)
            except Exception as error:
                reason = shown_error(error)
                _teller.logger.error("cyclescope: collect_on_pressure ended: %s", reason)
                return

    def _look(self, torch: Torch) -> None:
        """Schedule a collection if one is due. On a thread of its own; makes no CUDA call."""
        now = time.monotonic()
        if self._scheduled or now < self._next or fullest(torch, self.fraction) is None:
            return
        if _known_cycles() or now >= self._next_look:
            self._scheduled = True
            _native.call_in_main_thread(self._relieve)

    def _relieve(self) -> None:
        """On the main thread, between two instructions of its Python code; nothing may leave it."""
        try:
            torch = reading.imported_torch()
            if not self._stopped.is_set() and torch is not None:
                self._collect(torch)
        except Exception as error:
            _teller.logger.error(
                "cyclescope: a collection under memory pressure failed: %s", shown_error(error)
            )
        finally:
            self._scheduled = False

    def _collect(self, torch: Torch) -> None:
        ordinal = fullest(torch, self.fraction)
        # A CUDA graph that is being recorded must not see memory go; the next look is soon.
        if ordinal is None or reading.is_capturing(torch):
            return
        device = f"cuda:{ordinal}"
        if not _known_cycles():
            self.looks += 1
            self._next_look = time.monotonic() + LOOK_SECONDS
            if not _native.look([device]).bytes_held:
                return
        before = allocated(torch, ordinal)
        started = time.monotonic()
        gc.collect()
        seconds = time.monotonic() - started
        freed = max(0, before - allocated(torch, ordinal))
        worth = freed >= WORTH * _total(torch, ordinal)
        self._rest = REST if worth else min(2 * self._rest, MAX_REST)
        self._next = time.monotonic() + max(self._rest, REST_FACTOR * seconds)
        self.collections.append(Relief(time.time(), device, before, freed, seconds))
        del self.collections[:-MAX_KEPT]
        _teller.logger.info(
            "%s was nearly full: a collection freed %.1f of %.1f MiB in %.0f ms",
            device,
            freed / MIB,
            before / MIB,
            seconds * 1e3,
        )


def collect_on_pressure(fraction: float = 0.9) -> PressureRelief:
    """Collect garbage when device memory is nearly full and cycles are known to hold some.

    The allocator's counters are read ten times a second, on a thread of its own, without a call of
    CUDA. A collection then runs on the main thread, between two instructions of its Python code;
    none while that thread records a CUDA graph. Cycles are known to hold memory when a watch, such
    as that of :func:`warn_tensor_cycles`, has seen them; without one it is looked for them first.
    Collections are at the least a second apart, and twenty times as long as they take; where they
    free next to nothing, longer and longer.

    A request that comes between two looks and does not fit fails all the same.

    Args:
        fraction: How much of a device must be allocated, of what this process may take of it.

    Raises:
        ValueError: If ``fraction`` is not a part of 1.
    """
    if isinstance(fraction, bool) or not 0 < fraction <= 1:
        raise ValueError(f"fraction must be more than 0 and at most 1, not {fraction!r}")
    return PressureRelief(fraction)


_handles: list[PressureRelief] = []


def fullest(torch: Torch, fraction: float) -> int | None:
    """The device that is fullest, of those that are fuller than ``fraction``."""
    if not reading.is_using_cuda(torch):
        return None
    fill = {
        ordinal: allocated(torch, ordinal) / max(1.0, _total(torch, ordinal))
        for ordinal in range(torch.cuda.device_count())
    }
    ordinal = max(fill, key=lambda each: fill[each], default=None)
    return ordinal if ordinal is not None and fill[ordinal] >= fraction else None


def allocated(torch: Torch, ordinal: int) -> int:
    """Bytes in use on a device, by PyTorch's allocator."""
    return int(torch._C._cuda_memoryStats(ordinal)["allocated_bytes"]["all"]["current"])


def _total(torch: Torch, ordinal: int) -> float:
    """Bytes of a device that this process may take; other processes may leave it less."""
    total = float(torch.cuda.get_device_properties(ordinal).total_memory)
    share = getattr(torch._C, "_cuda_getMemoryFraction", None)
    allowed = None if share is None else reading.quietly(share, ordinal)
    return total * (1.0 if allowed is None else float(allowed))


def _known_cycles() -> bool:
    watch = _watch.running_warner()
    return watch is not None and any(leak.bytes for leak in watch.leaks)


def _after_fork_in_child() -> None:
    _handles.clear()


if not OFF and hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
