"""What cyclescope leaves behind dies by itself: the program's collections find its own only."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import gc, sys, time
import numpy
import cyclescope

def make(folder):
    {}

def garbage():
    gc.collect()
    gc.disable()
    for _ in range(3):
        make(sys.argv[1])
    time.sleep(0.2)  # a thread ends
    found = gc.collect()
    gc.enable()
    return found

garbage()  # what is imported for it
print(garbage())
"""


@pytest.mark.parametrize(
    "make",
    [
        "cyclescope.on_signal('USR1').stop()",
        "cyclescope.on_oom(folder).stop()",
        "cyclescope.collect_on_pressure().stop()",
        "cyclescope.watch_growth().stop()",
        "cyclescope.watch_growth()",
        "cyclescope.warn_tensor_cycles(devices='any').stop()",
        "cyclescope.observe_tensor_cycles(lambda report: None).stop()",
        "str(cyclescope.heap())",
        "str(cyclescope.why_alive(numpy))",
        "str(cyclescope.find_tensor_cycles(devices='any'))",
        "cyclescope.step(every=1, devices='any')",
    ],
)
def test_nothing_cyclic_is_left_behind(make: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM.format(make), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    assert gc.isenabled()
