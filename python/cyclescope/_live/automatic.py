"""Steps of a monitor for programs that do not call it."""

from __future__ import annotations

from typing import Any

from cyclescope import _log, _native
from cyclescope._imported import imported, imported_torch, modules
from cyclescope._live.growth import Growth, LeakMonitor, running_beside
from cyclescope._live.imports import Waiting
from cyclescope._live.reading import Torch
from cyclescope._off import OFF
from cyclescope._poller import Poller
from cyclescope._system import monotonic

PATIENCE = 1.0
"""A program in which no optimizer has made a step for so many seconds is looked at once in so long:
it may be an evaluation."""


class AutomaticSteps:
    """Has a monitor count the steps of all optimizers, and seconds where there are none.

    If the program starts a monitor of its own, that takes over, so that nothing is reported twice.
    """

    def __init__(self, monitor: LeakMonitor) -> None:
        self._monitor = monitor
        self._is_own = True
        self._stepped = monotonic()
        self._is_stopped = False
        self._hook: Any = None
        self._waiting = Waiting(self._begin)
        self._poller = None if OFF else Poller(self._tick, PATIENCE, "cyclescope-growth")

    @property
    def monitor(self) -> LeakMonitor:
        """Whose steps they are."""
        return self._monitor

    @property
    def found(self) -> list[Growth]:
        """What grows."""
        return self._monitor.found

    def stop(self) -> None:
        """Count no more."""
        self._is_stopped = True
        if self._poller is not None:
            self._poller.stop()
        self._waiting.stop()
        if self._hook is not None:
            self._hook.remove()
        if self._counts():
            self._monitor.stop()

    def _begin(self, torch: Torch) -> None:
        # PyTorch imports it itself, but does not have it as an attribute of `torch.optim`.
        register = imported("torch.optim.optimizer", "register_optimizer_step_post_hook")
        if register is not None:
            self._hook = register(self._after_step)

    def _after_step(self, *_: object) -> None:
        self._stepped = monotonic()
        if self._counts():
            self._monitor.step()

    def _counts(self) -> bool:
        """False once the program has a monitor."""
        other = running_beside(self._monitor) if self._is_own else None
        if other is not None:
            self._is_own = False
            self._monitor.stop()
            self._monitor = other
        return self._is_own

    def _tick(self) -> None:
        if monotonic() - self._stepped < PATIENCE or not _has_framework():
            return
        try:
            _native.call_in_main_thread(self._sample)
        except RuntimeError as error:
            _log.debug("%s", error)

    def _sample(self) -> None:
        if not self._is_stopped and self._counts():
            self._monitor.sample()


def _has_framework() -> bool:
    """Whether the program has imported what has arrays, and PyTorch to the end if at all."""
    if "torch" in modules():
        return imported_torch() is not None
    return any(name in modules() for name in ("numpy", "jax", "cupy", "numba", "tensorflow"))
