"""A leak of the script's own class is the same whether the script still runs or has ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.processes import python

# CPython takes `__file__` out of `__main__` when a script ends.
SCRIPT = """
import atexit, gc, json, sys, time
import numpy
import cyclescope

watch = cyclescope.warn_tensor_cycles(devices="any", min_bytes=0)

class Box:
    pass

def make():
    box = Box()
    box.me = box
    box.data = numpy.zeros(10)

def say():
    watch.flush()
    print(json.dumps([(leak.signature, leak.count) for leak in watch.leaks]))

make()
atexit.register(say)
"""


@pytest.mark.parametrize(
    ("end", "count"), [("gc.collect()", 1), ("atexit.register(gc.collect)", 1), ("both", 2)]
)
def test_it_has_its_signature_and_line(tmp_path: Path, end: str, count: int) -> None:
    both = "gc.collect()\nwatch.flush()\nmake()\natexit.register(gc.collect)"
    script = tmp_path / "script.py"
    running = SCRIPT + "gc.collect()\nsay()\natexit.unregister(say)\n"
    script.write_text(running, "utf-8")
    ((signature, _),) = json.loads(python(script, check=True).stdout)
    script.write_text(SCRIPT + {"both": both}.get(end, end), "utf-8")
    done = python(script, check=True)
    assert json.loads(done.stdout) == [[signature, count]]
    assert f"{script}:{1 + SCRIPT.splitlines().index('    box.me = box')}:" in done.stderr
