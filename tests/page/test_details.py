"""What is easily got wrong: names of any length and script, backticks, focus, dimming, jumps."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

import cyclescope
from support.browser import Open


def with_names(report: cyclescope.CycleReport, change: Callable[[str], str]) -> Any:
    """The report with other names of types, references, files and summaries."""
    data = json.loads(report.to_json())

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                named = key in ("label", "type_name", "summary", "edge", "name", "owner", "file")
                if named and isinstance(inner, str):
                    value[key] = change(inner)
                else:
                    walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    walk(data["leaks"])
    for leak in data["leaks"]:
        leak["advice"]["text"] = change("Break it")
        leak.pop("source", None)
        leak.pop("patch", None)
    return cyclescope.CycleReport.from_json(json.dumps(data))


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_names_of_300_letters_fit(
    several: cyclescope.CycleReport, open_page: Open, width: int
) -> None:
    long = with_names(several, lambda name: name + "x" * 300)
    opened = open_page(long.to_html(), viewport={"width": width, "height": 900})
    expect(opened.drawing).to_have_attribute("role", "application")
    opened.page.evaluate("document.querySelectorAll('details').forEach(it => it.open = true)")
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    # Nothing reaches beyond what it is in, but for what scrolls.
    beyond = opened.page.evaluate("""() => {
      const parts = "main .gist dd, main .advice p, nav a > *, .marks li, h1, .lead";
      const isCut = it => it.clientWidth && it.scrollWidth > it.clientWidth + 1;
      const cut = [...document.querySelectorAll(parts)].filter(isCut);
      return cut.filter(it => getComputedStyle(it).overflow === "visible").map(it => it.outerHTML);
    }""")
    assert beyond == []


def test_names_that_read_from_the_right_do_not_move_what_stands_beside_them(
    several: cyclescope.CycleReport, open_page: Open
) -> None:
    hebrew = with_names(several, lambda name: "".join("אבגד"[ord(c) % 4] for c in name))
    opened = open_page(hebrew.to_html())
    lead = opened.page.locator(".lead")
    at, name = lead.locator("b").first.bounding_box(), lead.locator("code").first.bounding_box()
    assert at is not None
    assert name is not None
    # In one line the name follows what it belongs to, as in the source.
    assert name["y"] > at["y"] + 5 or name["x"] >= at["x"] + at["width"] - 1
    entry = opened.page.locator("nav a").first
    size, summary = (entry.locator(it).bounding_box() for it in ("b", "span"))
    assert size is not None
    assert summary is not None
    assert size["x"] < summary["x"] or size["y"] < summary["y"]


def test_escape_gives_the_focus_back(several: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(several.to_html(), viewport={"width": 1440, "height": 900})
    opened.page.keyboard.press("/")
    field = opened.page.get_by_placeholder("Find an object")
    expect(field.first).to_be_focused()
    opened.page.keyboard.press("Escape")
    expect(opened.drawing).to_be_focused()
    opened.page.keyboard.press("f")
    expect(opened.page.get_by_placeholder("Find a leak")).to_be_focused()
    opened.page.keyboard.press("Escape")
    expect(opened.page.locator("nav a[aria-current]")).to_be_focused()


def test_a_dimmed_name_is_not_struck_through(
    report: cyclescope.CycleReport, open_page: Open
) -> None:
    opened = open_page(report.to_html())
    opened.drawing.locator(".node.held").click()
    label = opened.drawing.locator(".label.dim").first
    expect(label).to_be_visible()
    # Its ground hides the line below it as ever.
    assert label.evaluate("it => getComputedStyle(it).opacity") == "1"
    ground = label.locator("rect")
    assert ground.evaluate("it => getComputedStyle(it).fillOpacity") == "1"
    assert float(label.locator("text").evaluate("it => getComputedStyle(it).opacity")) < 0.5


def test_code_that_is_cut_off_is_marked_and_scrolls_by_key(
    several: cyclescope.CycleReport, open_page: Open
) -> None:
    opened = open_page(several.to_html(), viewport={"width": 390, "height": 900})
    opened.page.evaluate("document.querySelectorAll('details').forEach(it => it.open = true)")
    cut = opened.page.evaluate("""() => [...document.querySelectorAll("main pre")]
      .filter(it => it.scrollWidth > it.clientWidth)
      .map(it => [getComputedStyle(it).backgroundImage.includes("gradient"), it.tabIndex])""")
    assert cut
    assert all(marked and tab == 0 for marked, tab in cut)
