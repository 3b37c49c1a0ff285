"""Whether the extension reads memory that is not its own; ``make test-valgrind`` runs it.

Valgrind says when a program reads freed or foreign memory, also where the read does no visible
harm. With ``PYTHONMALLOC=malloc``, each of Python's objects is a block of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = {
    "checks": """
import contextlib, threading
import cyclescope
from support.nodes import Node

def suspended():
    for number in [1, 2]:
        yield number

def look(node, *others, key=None):
    for _ in [1, 2]:
        with contextlib.suppress(ValueError):
            cyclescope.heap()
            cyclescope.find_tensor_cycles(devices="any")
            cyclescope.why_alive(node)

def wait(at_work, done):
    kept = [bytearray(1000)]
    for _ in sorted([1, 2]):
        at_work.set()
        done.wait()

at_work, done = threading.Event(), threading.Event()
thread = threading.Thread(target=wait, args=(at_work, done))
thread.start()
at_work.wait()
generator = suspended()
next(generator)
node = Node()
node.me = node
max([look(node, generator, key=len) is None for _ in range(1)])
done.set()
thread.join()
""",
    "growth": """
import gc
import cyclescope
from support import random_growth

for seed in range(2):
    gc.collect()
    run = random_growth.Run(seed)
    with cyclescope.watch_growth(max_share=float("inf")) as monitor:
        for step in range(200):
            run.step(step)
            monitor.step()
    assert "samples" in str(monitor.found) + monitor.headline
""",
    "watch": """
import gc
from unittest import SkipTest
import common
import cyclescope

said = []
with cyclescope.observe_tensor_cycles(said.append, devices="any") as watch:
    for name in common.names():
        try:
            common.load(name).leak("cpu")
        except (SkipTest, AttributeError, SystemExit):  # it needs PyTorch or a GPU
            continue
        gc.collect()
    watch.flush()
assert len(said) > 40
for report in said:
    report.to_html(), report.to_text(), report.to_dot(), report.to_json()
""",
}

KNOWN = re.compile(r"FrameLayout::known|_PyLong_New")
"""What is well with words that were never written: the probe of a frame looks for one word among
them, and CPython 3.11 computes the address of a small integer from one (``maybe_small_long`` in
Objects/longobject.c), which is right all the same."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_valgrind_finds_nothing(name: str, tmp_path: Path) -> None:
    log = tmp_path / "valgrind.log"
    environment = os.environ | {"PYTHONMALLOC": "malloc", "FIXTURES_WITHOUT_TORCH": "1"}
    options = ["--error-limit=no", "--track-origins=yes", "--num-callers=20", f"--log-file={log}"]
    command = ["valgrind", *options, sys.executable, "-c", PROGRAMS[name]]
    subprocess.run(command, check=True, env=environment)
    errors = re.split(r"^==\d+== $", log.read_text(), flags=re.MULTILINE)
    wrong = [
        error
        for error in errors
        if re.search("Invalid|ninitialised|Mismatched|overlap", error)
        and "cyclescope::" in error
        and not KNOWN.search(error)
    ]
    assert wrong == []
