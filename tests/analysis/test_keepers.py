"""Every reference that keeps an object alive is named: without them it goes, with one of them it stays.

``TEST_CASES`` says how many programs are tried (default: 300).
"""

from __future__ import annotations

import os

import pytest

import cyclescope
from support.random_owners import check_keepers

CASES = int(os.environ.get("TEST_CASES", "300"))

pytestmark = pytest.mark.usefixtures("small_heap", "collector_paused")


def test_deleting_what_is_named_frees_the_object_and_nothing_less_does() -> None:
    counts = [check_keepers(number) for number in range(CASES)]
    # The programs are such that several are needed in many of them.
    assert sum(count > 1 for count in counts) > CASES // 4
