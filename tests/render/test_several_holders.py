"""What is said of a leak of several objects: whether each holds memory of its own."""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy
import pytest

import cyclescope

pytestmark = pytest.mark.usefixtures("collector_paused")


class Hashable(numpy.ndarray):
    """An array that can be in a set."""

    __hash__ = object.__hash__  # type: ignore[assignment]


def array() -> numpy.ndarray:
    return numpy.zeros(1000).view(Hashable)


class Loop:
    def __init__(self, held: object) -> None:
        self.me = self
        self.held = held


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: [Loop(array()) for _ in range(3)], "Loop and others like it hold"),
        (lambda: [Loop(array())], "Loop holds"),
        (lambda: [Loop(held) for held in 3 * [{array(), array()}]], "Loop holds"),
    ],
    ids=["one each", "one", "a set of all"],
)
def test_who_holds(make: Callable[[], list[Loop]], said: str) -> None:
    gc.collect()
    make()
    text = cyclescope.find_tensor_cycles(devices="any").to_text()
    assert f"\n  {__name__}.{said}\n" in text
