"""Where everything refers to everything, a report is small, and says what it leaves out."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy
import pytest

from support.owners import found

pytestmark = pytest.mark.usefixtures("collector_paused")

COUNT = 200


class Peer:
    def __init__(self) -> None:
        self.array = numpy.zeros(100)
        self.peers: list[Any] = []


def make() -> None:
    all_of_them = [Peer() for _ in range(COUNT)]
    for each in all_of_them:
        each.peers = list(all_of_them)


def test_few_of_the_references_are_in_the_report_and_the_others_are_counted() -> None:
    report = found(make)
    text = report.to_json()
    (leak,) = json.loads(text)["leaks"]
    graph = leak["graph"]
    # A list refers to each object, and each object to its list.
    assert len(graph["edges"]) + graph["references_omitted"] == COUNT * COUNT + 2 * COUNT
    assert len(graph["edges"]) <= 5 * COUNT
    assert {edge["to"] for edge in graph["edges"]} == set(range(len(graph["nodes"])))
    assert len(leak["cuts"]) == COUNT
    assert all(cut["proven"] for cut in leak["cuts"])
    assert len(text) < 400_000
    page = report.to_html()
    assert len(page) < 300_000
    omitted = graph["references_omitted"]
    assert f"{omitted:,} more references" in report.to_dot()
    # The drawing may leave out some of those that the report has.
    told = re.search(r"([\d,]+) more references are not drawn", page)
    assert told
    assert int(told[1].replace(",", "")) >= omitted
