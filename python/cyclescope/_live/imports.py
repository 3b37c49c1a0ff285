"""Waiting for the program to import PyTorch, without importing it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from cyclescope._live.reading import Torch, imported_torch
from cyclescope._off import OFF

INTERVAL = 0.05
"""Seconds between looks."""


class Waiting:
    """Calls a function with the module ``torch`` as soon as it is imported, at once if it is.

    Never with ``CYCLESCOPE_OFF`` set, so that what waits installs nothing.
    """

    def __init__(self, then: Callable[[Torch], None]) -> None:
        self._then = then
        self._stopped = threading.Event()
        if OFF:
            return
        torch = imported_torch()
        if torch is not None:
            then(torch)
        else:
            threading.Thread(target=self._wait, name="cyclescope-import", daemon=True).start()

    def stop(self) -> None:
        """Wait no longer."""
        self._stopped.set()

    def _wait(self) -> None:
        while not self._stopped.wait(INTERVAL):
            torch = imported_torch()
            if torch is not None:
                self._then(torch)
                return
