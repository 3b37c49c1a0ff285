"""A report waits for the reading of a large file, not for a thought about each of its lines."""

from __future__ import annotations

from pathlib import Path

from support.processes import python

CLASSES = 2_500

RUN = """
import cyclescope, large, numpy
large.Stage7()
(leak,) = cyclescope.find_tensor_cycles(devices="any").leaks
print(leak.source.marked)
"""


def test_a_leak_of_one_class_of_thousands(tmp_path: Path) -> None:
    text = "import numpy\n"
    for number in range(CLASSES):
        text += f"""
class Stage{number}:
    def __init__(self):
        self.buffer = numpy.zeros(100_000)
        self.on_done = lambda: self.buffer.sum()
"""
    (tmp_path / "large.py").write_text(text)
    (tmp_path / "run.py").write_text(RUN)
    # If each of the lines is looked at with all others, this takes minutes.
    done = python("run.py", cwd=tmp_path, timeout=60, check=True)
    marked = int(done.stdout)
    assert text.splitlines()[marked - 1].startswith("        self.on_done")
