"""A leak of more objects than a report describes names what holds the memory all the same."""

from __future__ import annotations

import gc
import json

import numpy
import pytest

import cyclescope

pytestmark = pytest.mark.usefixtures("collector_paused")

COUNT = 2000


class Agent:
    def __init__(self, replay: Replay) -> None:
        self.replay = replay


class Replay:
    def __init__(self) -> None:
        self.agent = Agent(self)
        self.transitions = [
            {"reward": numpy.zeros(1), "seen": numpy.zeros((21, 84))} for _ in range(COUNT)
        ]


def test_the_way_to_the_largest_buffer_is_known() -> None:
    gc.collect()
    Replay()
    report = cyclescope.find_tensor_cycles(devices="any")
    (leak,) = json.loads(report.to_json())["leaks"]
    first, *others = leak["buffers"]
    attribute, _, key = first["path"]
    assert (attribute, key) == (".transitions", "['seen']")
    assert first["bytes"] == max(other["bytes"] for other in others)
    assert "↓ .transitions" in report.to_text()
    # Of the arrays that have no box, half are of another size.
    assert "such as float64[21, 84]" in report.to_html()
