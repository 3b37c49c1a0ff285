"""A plugin of pytest that starts a watch, for the test suites of others; see ``suites.py``.

It is copied into a folder of its own, as that must not bring its neighbours here to the suite.
"""

from __future__ import annotations

import gc
import json
import logging
import os
from typing import Any

import pytest


def leave_garbage(phase: str, info: dict[str, int]) -> None:
    """Another callback. What it leaves has an array in it, for the watch to report each time."""
    if phase == "stop":
        import numpy

        ring: list[Any] = [numpy.zeros(8)]
        ring.append(ring)


class Watching:
    """Watches from the beginning to the end, and says how many leaks it has told of."""

    def __init__(self, folder: str) -> None:
        import cyclescope

        logging.getLogger("cyclescope").disabled = True
        reports = os.path.join(folder, "reports")
        self.proof = os.path.join(folder, "proof.json")
        self.watch = cyclescope.warn_tensor_cycles(devices="any", report_dir=reports)
        self.process = os.getpid()

    def pytest_unconfigure(self) -> None:
        if os.getpid() != self.process:
            return
        import numpy

        was_running = self.watch.is_running
        before = sum(leak.count for leak in self.watch.leaks)
        # A last leak, for a suite that has none of its own.
        ring: list[Any] = [numpy.zeros(1234)]
        ring.append(ring)
        del ring
        gc.collect()
        self.watch.stop()
        told = sum(leak.count for leak in self.watch.leaks)
        with open(self.proof, "w", encoding="ascii") as proof:
            json.dump({"leaks": before, "works": was_running and told > before}, proof)


def pytest_configure(config: pytest.Config) -> None:
    mode = os.environ["HARMLESS_MODE"]
    gc.set_threshold(50, 5, 5)
    if mode == "beside":
        gc.callbacks.append(leave_garbage)
    if mode != "bare":
        config.pluginmanager.register(Watching(os.environ["HARMLESS_FOLDER"]), "harmless-watching")
