"""A check copies no memory that forked processes share: servers freeze, then fork."""

from __future__ import annotations

import sys

import pytest

from support.processes import python

PROGRAM = """
import gc, os, struct, sys
import cyclescope

heap = [[number] for number in range(100_000)]
pages = sorted({id(it) // os.sysconf("SC_PAGE_SIZE") for it in heap})

def copied():
    # Bit 56: mapped by this process alone (Documentation/admin-guide/mm/pagemap.rst of Linux).
    with open("/proc/self/pagemap", "rb") as file:
        def is_own(page):
            file.seek(page * 8)
            return struct.unpack("Q", file.read(8))[0] >> 56 & 1
        return sum(map(is_own, pages))

gc.collect()
if sys.argv[1] == "frozen":
    gc.freeze()
child = os.fork()
if not child:
    before = copied()
    CHECK
    print((copied() - before) / len(pages))
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
"""

CHECKS = [
    "cyclescope.find_tensor_cycles(devices='any')",
    "cyclescope.step(every=1)",
    "with cyclescope.forbid_tensor_cycles(devices='any'): pass",
    "cyclescope.warn_tensor_cycles(devices='any'); gc.collect()",
]


def share_copied(check: str, state: str) -> float:
    done = python("-c", PROGRAM.replace("CHECK", check), state, check=True)
    return float(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/pagemap")
@pytest.mark.parametrize("check", CHECKS)
def test_frozen_objects_stay_shared(check: str) -> None:
    assert share_copied(check, "frozen") < 0.05


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/pagemap")
def test_the_pages_are_the_right_ones() -> None:
    """What is not frozen is written to by the collector itself."""
    assert share_copied("gc.collect()", "as they are") > 0.95
