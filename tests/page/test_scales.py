"""Do a chart and a bar show what stands where they say it?"""

from __future__ import annotations

import gc
import json
import re
from typing import Any

import numpy
from playwright.sync_api import expect

import cyclescope
from cyclescope import _native
from support import gallery
from support.browser import Open

MIB = 1 << 20


def test_of_an_enlarged_chart_only_what_is_shown_is_read_out(open_page: Open) -> None:
    samples = [(step, step // 2, step * MIB) for step in range(10, 400, 10)]
    found = {"steps": 390, "samples": 39, "all": samples}
    opened = open_page(_native.GrowthReport.from_json(json.dumps(found)).to_html())
    chart = opened.page.locator("svg.chart").first
    said, line = opened.page.locator(".said").first, chart.locator(".pointer")
    box = chart.bounding_box()
    assert box is not None

    def move_to(share: float) -> None:
        opened.page.mouse.move(box["x"] + box["width"] * share, box["y"] + 50, steps=3)

    move_to(0.5)
    expect(line).to_have_attribute("display", "inline")
    opened.page.mouse.down()
    move_to(0.84)
    opened.page.mouse.up()
    steps: Any = chart.locator(".dot").evaluate_all(
        "all => all.flatMap((one, at) => one.checkVisibility() ? [10 * (at + 1)] : [])"
    )
    for share, step in ((0.105, steps[0]), (0.984, steps[-1]), (0.5, None)):
        move_to(share)
        told = re.search(r"step (\d+):", said.text_content() or "")
        assert told is not None
        assert step is None or int(told[1]) == step
        place = re.match(r"M(\S+)", line.get_attribute("d") or "")
        dot = chart.locator(".dot").nth(int(told[1]) // 10 - 1)
        assert place is not None
        assert place[1] == dot.get_attribute("cx")


def test_what_is_unreachable_has_one_colour_on_the_page(open_page: Open) -> None:
    class Node: ...

    gc.disable()
    try:
        node: Any = Node()
        node.me, node.rows = node, numpy.zeros(8 * MIB)
        del node
        seen = cyclescope.heap()
    finally:
        gc.enable()
        gc.collect()
    found = json.loads(gallery.out_of_memory().to_json())
    found["roles"] = {"garbage in cycles": 64 * MIB, "other tensors": 8 * MIB}
    page = _native.PostMortem.from_json(json.dumps(found)).to_html(seen, None, None)
    opened = open_page(page)
    bar = opened.page.locator(".bars .block.garbage rect").first
    owner = opened.page.locator("svg.icicle > .block").filter(has_text="unreachable objects").first
    colour = "element => getComputedStyle(element).fill"
    assert bar.evaluate(colour) == owner.locator("rect").first.evaluate(colour)
    expect(opened.page.locator(".legend").last).to_contain_text("unreachable 64.0 MiB")
