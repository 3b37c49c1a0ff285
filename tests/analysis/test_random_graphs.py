"""Random object graphs, against a slow and obvious account of what is garbage and what it holds.

Here hypothesis makes some, and makes what fails smaller; ``long/brute.py`` makes very many.
``TEST_CASES`` says how many (default: 60).
"""

from __future__ import annotations

import gc
import os
import sys
from random import Random

import numpy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cyclescope
from support.random_programs import (
    Node,
    Program,
    Watched,
    check_aftermath,
    check_report,
    program_of,
)
from support.random_programs import check_watched as check_watched

CASES = int(os.environ.get("TEST_CASES", "60"))

pytestmark = pytest.mark.usefixtures("collector_paused")


def programs() -> st.SearchStrategy[Program]:
    return st.randoms(use_true_random=False).map(program_of)


@settings(max_examples=CASES, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_bytes_groups_cycles_and_cuts(program: Program) -> None:
    gc.collect()  # what an example before this one left, if it failed
    check_report(program)


@settings(max_examples=CASES, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_the_heap_is_afterwards_as_without_us(program: Program) -> None:
    gc.collect()
    check_aftermath(program)


@pytest.mark.parametrize("generation", [0, 1, 2])
def test_what_a_watch_sees(generation: int, check_watched: Watched) -> None:
    for number in range(CASES):
        check_watched(program_of(Random(number)), generation)


def test_a_dict_that_the_collector_does_not_track() -> None:
    """It holds an array alone, and two references of one object lead to it."""
    gc.collect()
    node = Node()
    node.me = node  # type: ignore[attr-defined]
    node.one = node.other = {"array": numpy.zeros(8)}  # type: ignore[attr-defined]
    # From 3.14 on the collector tracks every dict.
    assert gc.is_tracked(node.one) == (sys.version_info >= (3, 14))  # type: ignore[attr-defined]
    with cyclescope.observe_tensor_cycles(lambda report: None, devices="any") as watch:
        del node
        gc.collect()
        watch.flush()
        assert [leak.bytes for leak in watch.leaks] == [64]
