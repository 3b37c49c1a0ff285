"""Is every string of the watched program data on the page, whatever it holds?"""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import expect

import common
import cyclescope
from support.browser import Open, Opened
from support.markup import CORPUS, MARKUP


@pytest.mark.parametrize("text", CORPUS.values(), ids=list(CORPUS))
def test_hostile_text_anywhere_in_a_report_stays_text(
    report: cyclescope.CycleReport, open_page: Open, text: str
) -> None:
    data = poisoned(json.loads(report.to_json()), text)
    hostile = cyclescope.CycleReport.from_json(json.dumps(data))
    check_harmless(open_page(hostile.to_html()))
    image = open_page(f"<!doctype html><body>{hostile.to_svg()}")
    expect(image.page.locator("#injected, img, b[id]")).to_have_count(0)
    assert image.page.evaluate("window.injected") is None


def test_hostile_names_of_a_program_stay_text(open_page: Open) -> None:
    with common.collector_paused():
        leak_with_hostile_names()
        report = cyclescope.find_tensor_cycles(devices="any")
    check_harmless(open_page(report.to_html()))


def test_lone_surrogates_of_a_program_stay_text(open_page: Open) -> None:
    with common.collector_paused():
        first = Holder()
        first.itself = {"\ud800 key \udfff": first}
        setattr(first, "\udc80", common.tensor("cpu", 1))
        del first
        report = cyclescope.find_tensor_cycles(devices="any")
    assert report.leaks
    opened = open_page(report.to_html())
    expect(opened.drawing.locator(".node.held")).to_be_visible()
    assert opened.complaints == []


def test_ten_megabytes_of_text_make_no_large_page(
    report: cyclescope.CycleReport, open_page: Open
) -> None:
    data = json.loads(report.to_json())
    node = data["leaks"][0]["graph"]["nodes"][0]
    step = data["leaks"][0]["cycle"][0]
    node["label"] = step["label"] = "long " * 2_000_000
    huge = cyclescope.CycleReport.from_json(json.dumps(data))
    page = huge.to_html()
    opened = open_page(page)
    expect(opened.drawing.locator(".node.held")).to_be_visible()
    for node_drawn in opened.drawing.locator(".node").all():
        node_drawn.hover()
    assert len(opened.facts.text_content() or "") < 2000
    assert opened.complaints == []
    assert len(page) < 1_000_000


class Holder:
    itself: object


def check_harmless(opened: Opened) -> None:
    views = ["The leak", *(n for n in ("Plumbing", "Everything") if opened.button(n).count())]
    for view in views:
        if len(views) > 1:
            opened.show(view)
        for node in opened.drawing.locator(".node").all():
            node.dispatch_event("pointerover")
            node.dispatch_event("click")
            opened.drawing.press("Escape")
    opened.page.locator("details.raw summary").first.click()
    opened.page.locator("details.trace summary").first.click()
    opened.page.get_by_placeholder("Find an object").first.fill("<img")
    assert opened.page.evaluate("window.injected") is None
    expect(opened.page.locator("#injected, img, b[id]")).to_have_count(0)
    expect(opened.page.locator("script")).to_have_count(2)
    expect(opened.page.locator("style")).to_have_count(2)
    expect(opened.page.get_by_text("<img src=x").first).to_be_attached()
    assert opened.complaints == []
    assert opened.requests == [opened.page.url]


def leak_with_hostile_names() -> None:
    kind: type[Any] = type(MARKUP, (), {"__module__": MARKUP})
    first, second = kind(), kind()
    setattr(first, MARKUP, second)
    second.names = {MARKUP: first}
    first.tensor = common.tensor("cpu", 1)
    code = compile("lambda: first", MARKUP, "eval")
    first.function = eval(code, {"first": first, "__name__": MARKUP})


def poisoned(value: Any, text: str) -> Any:
    """The report with every text in it hostile, but for those that are one of a few words."""
    if isinstance(value, dict):
        keep = ("kind", "role")
        return {k: v if k in keep else poisoned(v, text) for k, v in value.items()}
    if isinstance(value, list):
        return [poisoned(item, text) for item in value]
    return text + value if isinstance(value, str) else value


def test_injected_script_does_not_run(report: cyclescope.CycleReport, open_page: Open) -> None:
    injection = (
        "<script>window.injected = 1</script><img src='data:,' onerror='window.injected=2'>"
        "<style>body { color: rgb(1, 2, 3) }</style><iframe src='data:text/html,x'></iframe>"
        "<p onclick='window.injected=3' style='color: rgb(1, 2, 3)'>mine</p>"
    )
    opened = open_page(report.to_html().replace("</body>", f"{injection}</body>"))
    opened.page.get_by_text("mine", exact=True).click()
    assert opened.page.evaluate("window.injected") is None
    assert opened.style("body", "color") != "rgb(1, 2, 3)"
    assert opened.style("body > p", "color") != "rgb(1, 2, 3)"
    assert any("Content Security Policy" in complaint for complaint in opened.complaints)
    assert [url for url in opened.requests if not url.startswith("data:")] == [opened.page.url]
    opened.drawing.locator(".node.held").hover()
    expect(opened.facts).to_contain_text("bytes on cpu")
