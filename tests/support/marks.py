"""Marks for tests that need what is not installed everywhere."""

from __future__ import annotations

import importlib.util
import os
import sys

import pytest

CLOSE_DROPS_VARIABLES = sys.version_info[:3] not in [(3, 12, 2), (3, 12, 3)]
"""Those versions keep the variables of a generator that was closed until it goes (gh-118272)."""

HAS_TORCH = importlib.util.find_spec("torch") is not None

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
needs_fifo = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="no PyTorch here")
needs_ipython = pytest.mark.skipif(
    importlib.util.find_spec("IPython") is None, reason="no IPython here"
)
