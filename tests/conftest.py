"""Fixtures for tests that run the garbage collector themselves."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("support.hostile", "support.names", "support.random_programs")

# Most tests leak a few bytes of host memory, and expect to be warned.
os.environ["CYCLESCOPE_MIN_BYTES"] = "0"


@pytest.fixture(scope="module")
def small_heap() -> Iterator[None]:
    """Freezes what is alive already, PyTorch's modules above all: no look at the heap visits it."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def collector_paused() -> Iterator[None]:
    """Starts with no garbage, and keeps automatic collections out of the test."""
    # Finalizers may leave new garbage. CPython 3.12.3 does not free a generator that holds
    # itself (gh-118272).
    for _ in range(10):
        if not gc.collect():
            break
    was_enabled = gc.isenabled()
    gc.disable()
    yield
    gc.collect()
    if was_enabled:
        gc.enable()


@pytest.fixture
def no_other_callbacks() -> Iterator[None]:
    """Leaves a new watch alone in ``gc.callbacks``, where Hypothesis has a callback too.

    What the test itself puts there does not outlive it.
    """
    others = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = others
