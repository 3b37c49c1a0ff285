"""Random programs by the hundred thousand, each made from one number; run by ``make test-brute``.

The checks are those of ``support.random_programs``. Hypothesis remembers all that it has tried, and
the collector looks at what it remembers, so that each case takes longer than the last; these all
take a millisecond or two. ``TEST_CASES`` says how many (default: 200,000 of each kind),
``TEST_FIRST`` from which number on, to go on where a run was cut off. A failure names its number.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from random import Random

import pytest

from support.random_programs import Program, Watched, check_aftermath, check_report, program_of
from support.random_programs import check_watched as check_watched

CASES = int(os.environ.get("TEST_CASES", "200000"))
FIRST = int(os.environ.get("TEST_FIRST", "0"))
LOT = 10_000

pytestmark = pytest.mark.usefixtures("collector_paused")


@pytest.mark.parametrize("lot", range(FIRST, FIRST + CASES, LOT))
@pytest.mark.parametrize("check", [check_report, check_aftermath])
def test_random_programs(check: Callable[[Program], None], lot: int) -> None:
    gc.collect()
    for number in range(lot, min(lot + LOT, FIRST + CASES)):
        try:
            check(program_of(Random(number)))
        except BaseException as error:
            raise AssertionError(f"the program of number {number}") from error


@pytest.mark.parametrize("lot", range(FIRST, FIRST + CASES, LOT))
@pytest.mark.parametrize("generation", [0, 1, 2])
def test_what_a_watch_sees_of_random_programs(
    generation: int, lot: int, check_watched: Watched
) -> None:
    test_random_programs(lambda program: check_watched(program, generation), lot)
