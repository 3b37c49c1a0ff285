"""An exception that went through many calls is told as one that went through few."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.processes import python

PROGRAM = """
import cyclescope, gc, numpy, sys

sys.setrecursionlimit(10_000)
gc.disable()


def descend(depth):
    batch = numpy.ones(50)
    if depth == 0:
        raise ValueError
    descend(depth - 1)


def chain(depth):
    batch = numpy.ones(50)
    try:
        if depth == 0:
            raise ValueError
        chain(depth - 1)
    except ValueError as error:
        raise ValueError(depth) from error


def keep(call, depth):
    kept = None
    try:
        call(depth)
    except ValueError as error:
        kept = error


for depth in map(int, sys.argv[2:]):
    keep({"descend": descend, "chain": chain}[sys.argv[1]], depth)
    for leak in cyclescope.find_tensor_cycles(devices="any").leaks:
        print(leak.signature, *(f"{cut.edge}:{cut.proven}" for cut in leak.cuts), sep=";")
"""


def told(folder: Path, *arguments: str) -> list[list[str]]:
    program = folder / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    lines = python(program, *arguments, check=True).stdout.splitlines()
    return [line.split(";") for line in lines]


@pytest.mark.parametrize("call", ["descend", "chain"])
def test_the_variable_is_named_at_each_depth(call: str, tmp_path: Path) -> None:
    found = told(tmp_path, call, "30", "300", "900")
    assert [cuts for _, *cuts in found] == [["local 'kept':True"]] * 3
    assert len({signature for signature, *_ in found}) == 1


def test_of_a_cycle_too_long_to_describe_a_short_one_is_told(tmp_path: Path) -> None:
    # CPython 3.11 and later do not limit calls in Python by the size of the C stack.
    [(_, *cuts)] = told(tmp_path, "descend", "4000")
    assert cuts == ["local 'kept':True"]
