"""Does the page open anywhere, say what happened, and do without script, colour or room?"""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

import cyclescope
from support.browser import Open, contrast


def test_opens_from_a_file_without_complaint_or_request(
    report: cyclescope.CycleReport, open_page: Open
) -> None:
    opened = open_page(report.to_html())
    opened.page.wait_for_load_state("networkidle")
    assert opened.complaints == []
    assert opened.requests == [opened.page.url]
    expect(opened.page.locator("section.leak")).to_have_count(1)
    expect(opened.drawing).to_be_visible()
    (leak,) = report.leaks
    for step in leak.cycle:
        name = step.edge
        expect(opened.drawing.locator(".label .ref").get_by_text(name, exact=True)).to_be_visible()


def test_an_ordinary_page_is_small(report: cyclescope.CycleReport) -> None:
    assert len(report.to_html().encode()) < 100_000


def test_the_header_says_where_and_when(report: cyclescope.CycleReport, open_page: Open) -> None:
    data = json.loads(report.to_json())
    data["process"] |= {"rank": 5, "gpus": ["NVIDIA H200"] * 8, "host": "node17"}
    frameworks = [f"{name} {version}" for name, version in data["process"]["frameworks"]]
    assert frameworks
    header = open_page(cyclescope.CycleReport.from_json(json.dumps(data)).to_html())
    facts = header.page.locator("header .facts")
    for told in ("node17", "5", "8 × NVIDIA H200", data["process"]["python"], *frameworks):
        expect(facts).to_contain_text(told)
    expect(facts).to_contain_text(str(data["process"]["pid"]))


def test_works_without_javascript(several: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(several.to_html(), java_script_enabled=False)
    drawings = opened.page.locator("svg.leak-drawing")
    expect(drawings).to_have_count(3)
    for drawing in drawings.all():
        expect(drawing).to_be_visible()
    expect(opened.page.locator(".tools").first).to_be_hidden()
    expect(opened.page.locator(".facts-of-object").first).to_be_hidden()
    expect(opened.page.get_by_role("button")).to_have_count(0)
    trace = opened.page.locator("details.trace").last
    trace.locator("summary").click()
    expect(trace.locator("pre")).to_contain_text("closure variable 'self'")
    assert opened.complaints == []


@pytest.mark.parametrize("width", [320, 420, 760])
def test_a_narrow_window_scrolls_in_one_direction_only(
    several: cyclescope.CycleReport, open_page: Open, width: int
) -> None:
    opened = open_page(several.to_html(), viewport={"width": width, "height": 800})
    expect(opened.drawing).to_be_visible()
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    box = opened.page.locator("section.leak:visible .view").bounding_box()
    facts = opened.facts.bounding_box()
    assert box is not None
    assert facts is not None
    assert facts["y"] >= box["y"] + box["height"] - 1, "the details are below the drawing"


def test_on_paper_there_is_all_and_no_tools(
    several: cyclescope.CycleReport, open_page: Open
) -> None:
    opened = open_page(several.to_html())
    opened.page.emulate_media(media="print")
    expect(opened.page.locator("section.leak:visible")).to_have_count(3)
    expect(opened.page.locator(".tools:visible")).to_have_count(0)
    expect(opened.page.locator(".facts-of-object:visible")).to_have_count(0)


def test_paper_is_white_and_nothing_is_cut_off(
    several: cyclescope.CycleReport, open_page: Open
) -> None:
    # As wide as A4 within its margins, asked for by who reads dark pages.
    opened = open_page(
        several.to_html(), color_scheme="dark", viewport={"width": 688, "height": 1000}
    )
    opened.page.locator("section.leak .view").first.dblclick()
    opened.page.emulate_media(media="print", color_scheme="dark")
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 688
    assert contrast(opened.style("body", "color"), "rgb(255, 255, 255)") >= 7
    assert opened.style(".paper", "fill") == "rgb(255, 255, 255)"
    for drawing in opened.page.locator("svg.leak-drawing").all():
        box = drawing.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 688
    expect(opened.page.locator("details:not(.run) > summary:visible")).to_have_count(0)
    assert opened.page.pdf().startswith(b"%PDF")


A4 = 688  # CSS pixels between its margins


def test_a_wide_drawing_is_legible_without_a_script(
    several: cyclescope.CycleReport, open_page: Open
) -> None:
    """A drawing of 3,000 pixels, shrunk to the width of a page, has letters of three."""
    page = several.to_html()
    assert 'data-first="narrow"' in page
    opened = open_page(page, viewport={"width": A4, "height": 1000}, java_script_enabled=False)
    drawings = opened.page.locator("svg.leak-drawing").all()
    assert len(drawings) == 3
    for drawing in drawings:
        box = drawing.bounding_box()
        assert box is not None
        assert box["width"] / drawing.evaluate("svg => svg.viewBox.baseVal.width") > 0.5


def test_a_wide_drawing_is_legible_on_paper(
    report: cyclescope.CycleReport, open_page: Open
) -> None:
    opened = open_page(report.to_html(), viewport={"width": 1500, "height": 1000})
    expect(opened.drawing.and_(opened.page.get_by_role("application"))).to_be_visible()
    drawn = "svg => svg.viewBox.baseVal.width"
    on_screen = opened.drawing.evaluate(drawn)
    assert on_screen > 2 * A4
    opened.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert opened.drawing.evaluate(drawn) < 2 * A4
    opened.page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert opened.drawing.evaluate(drawn) == on_screen


def test_an_old_browser_is_offered_what_it_can_show(
    tree: cyclescope.CycleReport, open_page: Open
) -> None:
    opened = open_page(tree.to_html())
    expect(opened.button("Everything")).to_be_visible()
    opened.page.add_init_script("delete window.DecompressionStream")
    opened.page.reload()
    expect(opened.page.get_by_role("button", name="Save as JSON")).to_be_visible()
    expect(opened.page.get_by_role("button", name="Save as DOT")).to_have_count(0)
    expect(opened.button("Everything")).to_have_count(0)
    opened.drawing.locator(".node.more").click()
    expect(opened.facts.get_by_role("listitem")).to_have_count(3)
    expect(opened.facts.get_by_role("button", name="Draw")).to_have_count(0)
    assert opened.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_tensor_and_cut_stand_out(
    report: cyclescope.CycleReport, open_page: Open, scheme: str
) -> None:
    opened = open_page(report.to_html(), color_scheme=scheme)
    held = opened.drawing.locator(".node.held")
    expect(held).to_have_count(1)
    expect(held).to_contain_text("2.0 MiB")
    others = opened.style(".leak-drawing .node:not(.held) rect", "fill")
    assert opened.style(".leak-drawing .node.held rect", "fill") != others

    (cut,) = {cut.edge for leak in report.leaks for cut in leak.cuts}
    expect(opened.drawing.locator(".label.cut")).to_contain_text(cut)
    expect(opened.drawing.locator(".label.cut .scissors")).to_be_visible()
    dashes = opened.style(".leak-drawing .edge.cut .line", "strokeDasharray")
    assert dashes != opened.style(".leak-drawing .edge.cycle .line", "strokeDasharray")
    strokes = {opened.style(f".edge.{kind} .line", "stroke") for kind in ("cut", "cycle", "path")}
    assert len(strokes) == 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable(several: cyclescope.CycleReport, open_page: Open, scheme: str) -> None:
    opened = open_page(several.to_html(), color_scheme=scheme)
    for node in opened.drawing.locator(".node").all():
        ground = node.locator("rect").evaluate("element => getComputedStyle(element).fill")
        for text in node.locator("text").all():
            ink = text.evaluate("element => getComputedStyle(element).fill")
            assert contrast(ink, ground) >= 4.5, f"{text.text_content()}: {ink} on {ground}"
    body = contrast(opened.style("body", "color"), opened.style("body", "backgroundColor"))
    assert body >= 7
    pressed = '.views [aria-pressed="true"]'
    ground = opened.style(pressed, "backgroundColor")
    assert contrast(opened.style(pressed, "color"), ground) >= 4.5


def test_light_and_dark_differ(report: cyclescope.CycleReport, open_page: Open) -> None:
    light, dark = (open_page(report.to_html(), color_scheme=scheme) for scheme in ("light", "dark"))
    for selector, name in [("body", "backgroundColor"), ("body", "color"), (".paper", "fill")]:
        assert light.style(selector, name) != dark.style(selector, name)
