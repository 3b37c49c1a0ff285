"""What a report says is done: its cuts are made, and its advice is compared with them."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from unittest import SkipTest

import numpy
import pytest

import common
import cyclescope
from support.applied import (
    LIBRARIES_OWN,
    Buffers,
    Subject,
    faults,
    not_in_text,
    unknown_names,
)
from support.trial import Trial
from support.varied import Varied, names_in, varied
from support.varied_shapes import SHAPES

pytestmark = pytest.mark.usefixtures("collector_paused")

CASES = int(os.environ.get("TEST_CASES", "4"))
"""So many programs of each shape."""


def judge(program: Varied) -> list[str]:
    """What is wrong with what is said of a program."""
    buffers = Buffers()
    module = program.load(lambda: buffers.note(numpy.zeros(2048)))
    subject = Subject(module.leak, buffers.held)
    try:
        subject.leak()
        report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
        found = list(faults(subject, report))
        for leak in report.leaks:
            found += unknown_names(leak.advice, program.names())
    finally:
        vars(module).clear()
        gc.collect()
    return found if report.leaks else ["nothing is found"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shape", SHAPES)
def test_varied_programs(shape: str) -> None:
    first = list(SHAPES).index(shape)
    for number in range(first, len(SHAPES) * CASES, len(SHAPES)):
        program = varied(number)
        if not program.is_possible:
            pytest.skip("exception groups came with Python 3.11")
        found = judge(program)
        assert not found, f"{program.text}\n" + "\n".join(found)


@pytest.mark.parametrize("name", common.names())
def test_fixtures(name: str) -> None:
    """The score removes the references of each; here, the words are compared with them."""
    try:
        trial = Trial(name, "cpu")
    except SkipTest as reason:
        pytest.skip(str(reason))
    trial.leak()
    report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
    trial.let_go()
    names = names_in((Path(common.__file__).parent / f"{name}.py").read_text())
    assert list(not_in_text(report)) == []
    for leak in report.leaks:
        if leak.pattern not in LIBRARIES_OWN:
            assert list(unknown_names(leak.advice, names)) == []
