"""Waiting for the program to import PyTorch, without importing it."""

from __future__ import annotations

from collections.abc import Callable

from cyclescope._imported import imported_torch
from cyclescope._live.reading import Torch
from cyclescope._off import OFF
from cyclescope._poller import Poller

INTERVAL = 0.05
"""Seconds between looks."""


class Waiting:
    """Calls a function with the module ``torch`` as soon as it is imported, at once if it is.

    Never with ``CYCLESCOPE_OFF`` set, so that what waits installs nothing.
    """

    def __init__(self, then: Callable[[Torch], None]) -> None:
        self._then: Callable[[Torch], None] = _nothing
        self._poller: Poller | None = None
        if OFF:
            return
        torch = imported_torch()
        if torch is not None:
            then(torch)
        else:
            self._then = then
            self._poller = Poller(self._look, INTERVAL, "cyclescope-import")

    def stop(self) -> None:
        """Wait no longer."""
        if self._poller is not None:
            self._poller.stop()
        self._then = _nothing  # It often leads back to whoever waits.

    def _look(self) -> None:
        torch = imported_torch()
        if torch is not None:
            then = self._then
            self.stop()
            then(torch)


def _nothing(torch: Torch) -> None: ...
