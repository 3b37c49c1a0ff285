"""Advice that is followed mends the leak: of each pattern a program, with and without it."""

from __future__ import annotations

import gc
import importlib
from importlib.util import find_spec

import pytest

import common
import cyclescope
from cyclescope import _native
from support.applied import LIBRARIES_OWN, Buffers, Subject, faults
from support.followed import PROGRAMS, Program

if find_spec("torch"):
    import support.followed_torch  # noqa: F401

pytestmark = pytest.mark.usefixtures("collector_paused")


@pytest.fixture(autouse=True, scope="module")
def compiler() -> None:
    """What optimizers import with their first step; only now, as it makes every heap larger."""
    if find_spec("torch"):
        importlib.import_module("torch._dynamo")


ABOUT_TORCH = {
    "autograd-context-kept-both-ways",
    "forward-replaced",
    "loader-callback-captures-owner",
    "module-hook-captures-module",
    "optimizer-hook-captures-owner",
    "parametrized-module",
    "scheduler-lambda-captures-owner",
    "tensor-attribute-leads-back",
    "tensor-hook-captures-tensor",
    "traced-graph-module",
}

EACH = [
    pytest.param(pattern, program, id=f"{pattern}: {program.__name__}")
    for pattern, programs in PROGRAMS.items()
    for program in programs
]


@pytest.mark.parametrize(("pattern", "program"), EACH)
def test_following_the_advice_mends_the_leak(pattern: str, program: Program) -> None:
    leaked, mended = Buffers(), Buffers()

    program(lambda: leaked.note(common.tensor("cpu", 1)), False)
    assert leaked.held()
    report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
    assert pattern in [leak.pattern for leak in report.leaks]
    gc.collect()
    if pattern not in LIBRARIES_OWN:
        make = lambda: leaked.note(common.tensor("cpu", 1))  # noqa: E731
        subject = Subject(lambda: program(make, False), leaked.held)
        assert list(faults(subject, report)) == []

    program(lambda: mended.note(common.tensor("cpu", 1)), True)
    assert mended.made
    assert mended.held() == 0
    assert not cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks


def test_each_pattern_has_a_program() -> None:
    patterns = {name for name, _ in _native.patterns()}
    needs_torch = ABOUT_TORCH - PROGRAMS.keys()
    assert not needs_torch or find_spec("torch") is None
    assert PROGRAMS.keys() | needs_torch == patterns
