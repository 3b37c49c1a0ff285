"""A watch takes no memory for what it knows, and keeps none of the program's; see ``memory.py``."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.marks import HAS_TORCH
from support.processes import python

MEMORY = Path(__file__).with_name("memory.py")
NEW = int(os.environ.get("TEST_CASES", "3000"))
HOST = ["array", "view", "bytearray", "unpickled", "subclass"]
TENSORS = ["tensor", "tensor-view", "parameter", "graph", "storage"]

pytestmark = pytest.mark.skipif(
    not os.path.exists("/proc/self/statm"), reason="what a process needs is not in /proc here"
)


def leak(kind: str, *more: str) -> subprocess.CompletedProcess[str]:
    return python(str(MEMORY), "--kind", kind, *more)


@pytest.mark.parametrize("kind", [*HOST, *TENSORS])
def test_memory_of_known_leaks_is_freed(kind: str) -> None:
    """A mebibyte each, 1,500 times."""
    if kind in TENSORS and not HAS_TORCH:
        pytest.skip("needs PyTorch")
    done = leak(kind, "--bytes=1048576", "--count=1500", "--allowed=64")
    assert done.returncode == 0, done.stdout + done.stderr


# Of so few the allowance is 150 bytes each, above the noise of an allocator.
@pytest.mark.parametrize("kind", [*HOST, *TENSORS])
def test_many_known_leaks_take_no_memory(kind: str) -> None:
    if kind in TENSORS and not HAS_TORCH:
        pytest.skip("needs PyTorch")
    done = leak(kind, "--count=20000", "--allowed=3")
    assert done.returncode == 0, done.stdout + done.stderr


def test_leaks_of_new_classes_take_no_memory() -> None:
    done = leak("class", "--count=20000", "--allowed=3")
    assert done.returncode == 0, done.stdout + done.stderr


def test_ever_new_leaks_take_little_memory() -> None:
    """Pages, tallies and queues have limits; the bound is for what fills up to them.

    ``TEST_CASES`` says of how many (default: 3000).
    """
    done = leak("distinct", f"--count={NEW}", "--allowed=6")
    assert done.returncode == 0, done.stdout + done.stderr
