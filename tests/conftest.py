"""The collector held still, for tests that say themselves when it runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture
def collector_paused() -> Iterator[None]:
    """No automatic collection comes between, and none takes long."""
    gc.collect()
    gc.freeze()  # what is there already need not be collected each time
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


@pytest.fixture
def no_other_callbacks() -> Iterator[None]:
    """A watch that begins now is alone in ``gc.callbacks``, where Hypothesis has one, too.

    What the test itself puts there does not outlive it.
    """
    others = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = others
