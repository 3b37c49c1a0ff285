"""Does the page do in a browser what it promises, from a file and without a network?"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect, sync_playwright

import cyclescope

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "fixtures"))

import common

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HOSTILE = "</script></title></svg><img src=x onerror='window.injected=1'><b id=injected>&amp;\"'`"


@dataclass
class Opened:
    """A page, and what it complained of and asked for so far."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    @property
    def drawing(self) -> Locator:
        return self.page.locator("svg.leak-drawing")

    @property
    def facts(self) -> Locator:
        return self.page.locator(".facts-of-object")

    def style(self, selector: str, name: str) -> str:
        """A computed property of the first element that matches."""
        first = self.page.locator(selector).first
        return str(first.evaluate("(element, name) => getComputedStyle(element)[name]", name))


Open = Callable[..., Opened]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if found is None:
        pytest.fail(
            "The page tests drive Chromium, and none of "
            f"{', '.join(CHROMIUM)} is on the PATH: install it (Debian: apt-get install chromium)."
        )
    with sync_playwright() as playwright:
        # Playwright gives each browser a profile folder of its own, and removes it afterwards.
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Opens a text as a file, in a context with the given options and no network."""
    contexts = []

    def open_page(text: str, **options: Any) -> Opened:
        context = browser.new_context(offline=True, **options)
        contexts.append(context)
        opened = Opened(context.new_page())

        def note(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                opened.complaints.append(message.text)

        opened.page.on("console", note)
        opened.page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        opened.page.on("request", lambda request: opened.requests.append(request.url))
        file = tmp_path / f"page-{len(contexts)}.html"
        file.write_text(text, encoding="utf-8")
        opened.page.goto(file.as_uri())
        return opened

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def report() -> cyclescope.CycleReport:
    with common.collector_paused():
        common.load("awaitable_leak").leak("cpu", 2)
        return cyclescope.find_tensor_cycles(devices="any")


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
def test_text_is_readable(report: cyclescope.CycleReport, open_page: Open, scheme: str) -> None:
    opened = open_page(report.to_html(), color_scheme=scheme)
    for node in opened.drawing.locator(".node").all():
        ground = node.locator("rect").evaluate("element => getComputedStyle(element).fill")
        for text in node.locator("text").all():
            ink = text.evaluate("element => getComputedStyle(element).fill")
            assert contrast(ink, ground) >= 4.5, f"{text.text_content()}: {ink} on {ground}"
    body = contrast(opened.style("body", "color"), opened.style("body", "backgroundColor"))
    assert body >= 7


def test_light_and_dark_differ(report: cyclescope.CycleReport, open_page: Open) -> None:
    light, dark = (open_page(report.to_html(), color_scheme=scheme) for scheme in ("light", "dark"))
    for selector, name in [("body", "backgroundColor"), ("body", "color"), (".paper", "fill")]:
        assert light.style(selector, name) != dark.style(selector, name)


def test_hover_shows_the_facts_of_an_object(
    report: cyclescope.CycleReport, open_page: Open
) -> None:
    opened = open_page(report.to_html())
    expect(opened.facts).to_contain_text("Point at an object")
    opened.drawing.locator(".node.held").hover()
    (buffer,) = report.leaks[0].buffers
    expect(opened.facts).to_contain_text(f"{buffer.bytes:,} bytes on cpu")
    expect(opened.facts).to_contain_text(buffer.type_name)
    opened.drawing.locator(".node.function").hover()
    expect(opened.facts).to_contain_text("closure variable 'self'")
    opened.page.locator("h1").hover()
    opened.drawing.hover(position={"x": 2, "y": 2})
    expect(opened.facts).to_contain_text("Point at an object")


def test_click_selects_an_object_and_its_neighbours(
    report: cyclescope.CycleReport, open_page: Open
) -> None:
    opened = open_page(report.to_html())
    function = opened.drawing.locator(".node.function")
    function.click()
    expect(opened.drawing).to_have_class(re.compile(r"\bchosen\b"))
    expect(function).to_have_class(re.compile(r"\bselected\b"))
    near = opened.drawing.locator(".node.near")
    expect(near).to_have_count(2)
    assert opened.style(".node.held", "opacity") != opened.style(".node.near", "opacity")
    opened.page.keyboard.press("Escape")
    expect(opened.drawing).not_to_have_class(re.compile(r"\bchosen\b"))


def test_search_finds_an_object(report: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(report.to_html())
    opened.page.get_by_placeholder("Find an object").fill("LAMBDA")
    match = opened.drawing.locator(".node.match")
    expect(match).to_have_count(1)
    expect(match).to_have_class(re.compile(r"\bfunction\b"))


def test_zoom_and_move(report: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(report.to_html())
    whole = opened.drawing.get_attribute("viewBox")
    opened.page.get_by_title("Zoom in").click()
    closer = opened.drawing.get_attribute("viewBox")
    assert closer != whole
    box = opened.drawing.bounding_box()
    assert box is not None
    opened.page.mouse.move(box["x"] + 20, box["y"] + 20)
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + 80, box["y"] + 60, steps=3)
    opened.page.mouse.up()
    assert opened.drawing.get_attribute("viewBox") not in (whole, closer)
    opened.page.get_by_role("button", name="Fit").click()
    assert opened.drawing.get_attribute("viewBox") == whole


def test_injected_script_does_not_run(report: cyclescope.CycleReport, open_page: Open) -> None:
    injection = "<script>window.injected = 1</script><img src='data:,' onerror='window.injected=2'>"
    opened = open_page(report.to_html().replace("</body>", f"{injection}</body>"))
    assert opened.page.evaluate("window.injected") is None
    assert any("Content Security Policy" in complaint for complaint in opened.complaints)
    assert opened.requests == [opened.page.url]
    opened.drawing.locator(".node.held").hover()
    expect(opened.facts).to_contain_text("bytes on cpu")


def test_hostile_names_of_a_program_stay_text(open_page: Open) -> None:
    with common.collector_paused():
        leak_with_hostile_names()
        report = cyclescope.find_tensor_cycles(devices="any")
    check_harmless(open_page(report.to_html()))


def test_hostile_text_anywhere_in_a_report_stays_text(
    report: cyclescope.CycleReport, open_page: Open
) -> None:
    hostile = cyclescope.CycleReport.from_json(json.dumps(poisoned(json.loads(report.to_json()))))
    check_harmless(open_page(hostile.to_html()))


def check_harmless(opened: Opened) -> None:
    for node in opened.drawing.locator(".node").all():
        node.hover()
        node.click()
        opened.page.keyboard.press("Escape")
    assert opened.page.evaluate("window.injected") is None
    expect(opened.page.locator("#injected, img, b[id]")).to_have_count(0)
    expect(opened.page.locator("script")).to_have_count(2)
    expect(opened.page.get_by_text("<img src=x").first).to_be_attached()
    assert opened.complaints == []
    assert opened.requests == [opened.page.url]


def leak_with_hostile_names() -> None:
    kind: type[Any] = type(HOSTILE, (), {"__module__": HOSTILE})
    first, second = kind(), kind()
    setattr(first, HOSTILE, second)
    second.names = {HOSTILE: first}
    first.tensor = common.tensor("cpu", 1)
    code = compile("lambda: first", HOSTILE, "eval")
    first.function = eval(code, {"first": first, "__name__": HOSTILE})


def poisoned(value: Any) -> Any:
    """The report with every text in it hostile, but for those that are one of a few words."""
    if isinstance(value, dict):
        return {k: v if k in ("kind", "role") else poisoned(v) for k, v in value.items()}
    if isinstance(value, list):
        return [poisoned(item) for item in value]
    return HOSTILE + value if isinstance(value, str) else value


def test_works_without_javascript(report: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(report.to_html(), java_script_enabled=False)
    expect(opened.drawing).to_be_visible()
    expect(opened.page.locator("section.leak h2")).to_contain_text("2.0 MiB")
    expect(opened.page.locator(".tools")).to_be_hidden()
    expect(opened.facts).to_be_hidden()
    trace = opened.page.locator("details.trace pre")
    expect(trace).to_be_hidden()
    opened.page.locator("details.trace summary").click()
    expect(trace).to_be_visible()
    expect(trace).to_contain_text("closure variable 'self'")
    assert opened.complaints == []


def test_in_a_notebook_it_keeps_its_style_to_itself(
    report: cyclescope.CycleReport, open_page: Open
) -> None:
    around = (
        "<!doctype html><body><h1>Mine</h1><table><td>mine</table><pre class='node'>mine</pre>"
        "<button>mine</button><section class='leak'>mine</section>{}</body>"
    )
    mine = "element => [...document.querySelectorAll('body, body *:not(iframe)')].map(e => "
    mine += "JSON.stringify([e.tagName, ...['color', 'backgroundColor', 'font', 'padding', "
    mine += "'borderTop'].map(name => getComputedStyle(e)[name])]))"
    alone = open_page(around.format(""))
    beside = open_page(around.format(report._repr_html_()))
    assert alone.page.evaluate(mine) == beside.page.evaluate(mine)

    frame = beside.page.frame_locator("iframe")
    expect(frame.locator("svg.leak-drawing .node.held")).to_be_visible()
    frame.locator(".node.held").hover()
    expect(frame.locator(".facts-of-object")).to_contain_text("bytes on cpu")
    assert beside.complaints == []


def contrast(one: str, other: str) -> float:
    """How well two colours are told apart, from 1 to 21, by the formula of WCAG 2."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    channels = [int(number) / 255 for number in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
