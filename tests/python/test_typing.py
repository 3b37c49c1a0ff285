"""A user's program, typed strictly against the package."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import cyclescope
from support.processes import python

PROGRAM = """
from __future__ import annotations

import unittest
from pathlib import Path


import cyclescope
from cyclescope import CycleReport, Leak, StepReport, TensorCycleError, Watch
from typing_extensions import assert_type


def on_leaks(report: CycleReport) -> None:
    for leak in report.leaks:
        assert_type(leak, Leak)
        print(leak.signature, leak.bytes_held, leak.cuts[0].location)


watch = cyclescope.warn_tensor_cycles(devices=["cuda:0", "cpu"], report_dir=Path("leaks"))
assert_type(watch, Watch)
assert_type(watch.report, CycleReport | None)
with cyclescope.observe_tensor_cycles(on_leaks):
    pass


@cyclescope.forbid_tensor_cycles(devices="any", ignore=["torch"])
def train(steps: int) -> float:
    return steps / 2


@cyclescope.forbid_tensor_cycles()
async def serve(request: str) -> bytes:
    async with cyclescope.forbid_tensor_cycles():
        return request.encode()


assert_type(train(3), float)

with cyclescope.forbid_tensor_cycles():
    try:
        cyclescope.assert_no_tensor_cycles()
    except TensorCycleError as error:
        assert_type(error.report, CycleReport)

found = cyclescope.step(every=100)
assert_type(found, StepReport | None)
if found is not None:
    scalars: dict[str, float] = found.scalars()
    merged = cyclescope.gather(found.report)
    assert_type(merged, CycleReport | None)
    Path("leaks.sarif").write_text(cyclescope.to_sarif(merged))

rank = cyclescope.current_rank()
print(0 if rank is None else rank.rank, cyclescope.settings().every)
with cyclescope.patch_torch():
    pass


class TestTraining(cyclescope.NoTensorCycles, unittest.TestCase):
    tensor_cycle_devices = "any"

    def test_step(self) -> None:
        train(1)
"""

WRONG = """
import cyclescope

cyclescope.warn_tensor_cycles(devices=3)
cyclescope.step(every="often")


@cyclescope.forbid_tensor_cycles()
def train(steps: int) -> float:
    return steps / 2


train("many")
cyclescope.find_cycles()
"""


def check(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program, encoding="utf-8")
    package = Path(cyclescope.__path__[0]).parent
    return python(
        *["-m", "mypy", "--strict", "--python-version=3.10", "program.py"],
        cwd=folder,
        env=os.environ | {"MYPYPATH": str(package)},
        timeout=280,
    )


def test_a_users_program_passes(tmp_path: Path) -> None:
    done = check(tmp_path, PROGRAM)
    assert done.returncode == 0, done.stdout


def test_mistakes_are_found(tmp_path: Path) -> None:
    done = check(tmp_path, WRONG)
    lines = [line.split(":")[1] for line in done.stdout.splitlines() if ": error:" in line]
    assert lines == ["4", "5", "13", "14"], done.stdout
