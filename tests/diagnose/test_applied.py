"""The report's word is done: its cuts are made, its advice is compared with them and the program."""

from __future__ import annotations

import gc
import os
from typing import Any

import numpy
import pytest

import common
import cyclescope
from support.applied import Buffers, Subject, faults, unknown_names
from support.varied import SHAPES, Varied, varied

pytestmark = pytest.mark.usefixtures("small_heap", "collector_paused")

CASES = int(os.environ.get("TEST_CASES", "4"))
"""So many programs of each shape."""


def subject_of(program: Varied) -> tuple[Subject, dict[str, Any]]:
    buffers = Buffers()
    names: dict[str, Any] = {
        "T": lambda: buffers.note(numpy.zeros(2048)),
        "__name__": __name__,
    }
    exec(compile(program.text, program.file, "exec"), names)
    return Subject(names["leak"], buffers.held), names


def judge(number: int) -> list[str]:
    program = varied(number)
    subject, names = subject_of(program)
    try:
        subject.leak()
        report = cyclescope.find_tensor_cycles(devices="any")
        found = list(faults(subject, report))
        for leak in report.leaks:
            found += unknown_names(leak.advice, program.names())
    finally:
        names.clear()
        gc.collect()
    return found if report.leaks else ["nothing is found"]


@pytest.mark.parametrize("shape", SHAPES)
def test_varied_programs(shape: str) -> None:
    first = list(SHAPES).index(shape)
    if shape == "exception group" and not hasattr(__builtins__, "ExceptionGroup"):
        pytest.importorskip("builtins", reason="exception groups came with Python 3.11")
    for number in range(first, len(SHAPES) * CASES, len(SHAPES)):
        found = judge(number)
        assert not found, f"{varied(number).text}\n" + "\n".join(found)
