"""An exception that is kept and raised again: every variable that keeps it is named."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.processes import python

RETRY = """
import cyclescope, gc, numpy


def load(step):
    batch = numpy.ones(50)
    if step < 2:
        raise TimeoutError(step)
    return batch.sum()


def retry(times):
    error = None
    for step in range(times):
        try:
            return load(step)
        except TimeoutError as exc:
            error = exc
    {end}


def train(times):
    failure = None
    try:
        failure = retry(times)
    except TimeoutError as exc:
        failure = exc
    return str(failure)


gc.disable()
for times in {calls}:
    train(times)
report = cyclescope.find_tensor_cycles(devices="any")
for leak in report.leaks:
    cut = ", ".join(cut.edge for cut in leak.cuts)
    print(leak.signature, cut, sep=":")
"""


def leaks(folder: Path, calls: tuple[int, ...], end: str = "raise error") -> dict[str, str]:
    """What is to be removed for each leak, by signature."""
    (folder / "pyproject.toml").touch()
    program = folder / "program.py"
    program.write_text(RETRY.format(calls=calls, end=end), encoding="utf-8")
    found = [line.split(":") for line in python(program, check=True).stdout.splitlines()]
    cuts = dict(found)
    assert len(cuts) == len(found)
    return cuts


@pytest.mark.parametrize("calls", [(3, 2), (2, 3), (2,)], ids=str)
def test_each_variable_that_keeps_it_is_named(tmp_path: Path, calls: tuple[int, ...]) -> None:
    found = leaks(tmp_path, calls)
    assert sorted(found.values()) == ["local 'error'", "local 'failure'"]
    for line in (19, 28):
        patch = python("-m", "cyclescope", "fix", f"program.py:{line}", "--diff", cwd=tmp_path)
        subprocess.run(["git", "apply"], input=patch.stdout, text=True, check=True, cwd=tmp_path)
        assert python("program.py", cwd=tmp_path).stdout.count("\n") == (line == 19)


def test_another_cut_of_the_same_cycle_is_another_leak(tmp_path: Path) -> None:
    alone = leaks(tmp_path, (3,), "return error")
    kept_twice = leaks(tmp_path, (2,), "return error")
    assert not alone.keys() & kept_twice.keys()
    assert leaks(tmp_path, (3, 2), "return error").keys() == {*alone, *kept_twice}


STORED = """
import cyclescope, gc, numpy, sys


class Worker:
    def run(self):
        batch = numpy.ones(50)
        try:
            raise TimeoutError(batch.sum())
        except TimeoutError:
            self.failure = sys.exc_info()


gc.disable()
Worker().run()
report = cyclescope.find_tensor_cycles(devices="any")
print(report)
"""


def test_what_is_raised_again_later_is_not_to_be_made_a_text(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(STORED, encoding="utf-8")
    said = " ".join(python(program, check=True).stdout.split())
    assert "`traceback.format_exc()`), if nothing else is needed" in said
    assert "set `Worker.failure` to None when it is no longer needed" in said
