"""A fixture for tests in which no automatic collection may come."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture
def paused(small_heap: None) -> Iterator[None]:
    """Collects before and after the test, and only then."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    yield
    gc.set_debug(0)
    gc.garbage.clear()
    gc.collect()
    if was_enabled:
        gc.enable()
