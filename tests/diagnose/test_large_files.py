"""A report waits for the reading of a large file, not for a thought about each of its lines."""

from __future__ import annotations

from pathlib import Path

from support.marks import needs_torch
from support.processes import python

CLASSES = 2_500
FILES, USES, LINES = 11, 44, 800

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


OWNER = """
class Owner:
    def __init__(self):
        self.data = []

    def step(self):
        self.data.append(torch.zeros(4096))
"""

WATCHED = """
import cyclescope, own
owner = own.Owner()
monitor = cyclescope.LeakMonitor(devices="any", min_bytes=0)
with monitor:
    for _ in range(16):
        owner.step()
        monitor.sample()
print(len(monitor.found))
"""


@needs_torch
def test_a_name_that_large_files_use_often(tmp_path: Path) -> None:
    names = [f"part_{number}" for number in range(FILES)]
    uses = "".join(
        f"        if flag{it}: x.data.clear()\n        flag{it} = a{it} + b{it}\n"
        for it in range(USES)
    )
    lines = "".join(f"        v{it} = w{it} * f{it}(g{it}, h{it})\n" for it in range(LINES))
    for name in names:
        text = f"Owner = 1\nclass Part:\n    def never_called(self, x):\n{uses}{lines}"
        (tmp_path / f"{name}.py").write_text(text)
    imports = "".join(f"import {name}\n" for name in ("torch", *names))
    (tmp_path / "own.py").write_text(imports + OWNER)
    (tmp_path / "run.py").write_text(WATCHED)
    # If the file is walked for each use, a step waits for a minute.
    done = python("run.py", cwd=tmp_path, timeout=40, check=True)
    assert done.stdout.split() == ["1"]
