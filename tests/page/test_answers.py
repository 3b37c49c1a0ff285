"""Does each page answer at once: is the first sentence the answer, and is what it draws legible?"""

from __future__ import annotations

import json
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import torch
from playwright.sync_api import expect

import common
import cyclescope
from support import gallery
from support.browser import Open

MIB = 1 << 20

OVERLAPS = """() => {
  const svg = document.querySelector("section.leak:not([hidden]) svg.leak-drawing");
  const boxes = (query) => [...svg.querySelectorAll(query)].map((each) => {
    const { left, right, top, bottom } = each.getBoundingClientRect();
    return { left, right, top, bottom, text: each.textContent.trim() };
  });
  const labels = boxes(".label"), nodes = boxes(".node rect:first-of-type");
  const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1.5
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1.5;
  const found = [];
  labels.forEach((label, index) => {
    for (const other of [...labels.slice(index + 1), ...nodes]) {
      if (meet(label, other)) found.push(`${label.text} over ${other.text || "a box"}`);
    }
  });
  return found;
}"""


class Part:
    """Refers to all others, and has a tensor."""


def dense() -> cyclescope.CycleReport:
    """A leak of parts that nearly all refer to each other by long names."""
    names = ("encoder", "decoder", "head", "neck", "body", "loss", "scheduler", "optimizer")
    with common.collector_paused():
        parts = [type(name.title(), (Part,), {})() for name in names]
        for index, part in enumerate(parts):
            for other, held in enumerate(parts):
                if other != index and (index * other + index) % 3:
                    setattr(part, f"{names[other]}_of_{names[index]}", held)
            part.data = torch.zeros(MIB // 8 * (index + 1))
        del parts, part, held
        return cyclescope.find_tensor_cycles(devices="any")


@pytest.mark.parametrize("width", [1440, 390])
def test_no_name_of_a_dense_leak_lies_over_another_or_over_a_box(
    open_page: Open, width: int
) -> None:
    opened = open_page(dense().to_html(), viewport={"width": width, "height": 900})
    expect(opened.drawing).to_have_attribute("role", "application")
    assert opened.drawing.locator(".label").count() > 3
    assert opened.page.evaluate(OVERLAPS) == []
    # What says nothing of the leak is counted, not drawn.
    others = opened.drawing.locator(".edge.other:not(.fold)[data-edge]").count()
    assert others <= 6 or "more references are not drawn" in opened.drawing.inner_text()


def test_what_holds_most_is_drawn_first(open_page: Open) -> None:
    class Owner:
        def __init__(self) -> None:
            self.me = self
            self.bias = torch.zeros(2 * MIB)
            self.batches = [torch.zeros(MIB) for _ in range(8)]

    with common.collector_paused():
        Owner()
        report = cyclescope.find_tensor_cycles(devices="any")
    opened = open_page(report.to_html(), viewport={"width": 390, "height": 900})
    expect(opened.drawing).to_have_attribute("role", "application")
    first, second = opened.drawing.locator(".node.held").all()
    places: Any = [held.bounding_box() for held in (first, second)]
    texts = [held.inner_html() for held in (first, second)]
    upper = texts[0] if places[0]["y"] < places[1]["y"] else texts[1]
    assert "8 × 4.0 MiB = 32.0 MiB" in upper


@pytest.fixture
def module() -> Iterator[Any]:
    made = types.ModuleType("hooked")
    sys.modules["hooked"] = made
    yield made
    del sys.modules["hooked"]


@pytest.fixture
def hooked(module: Any) -> str:
    """The page of a tensor that 18 hooks, a list and a cache keep."""
    kept = torch.zeros(MIB)
    module.model = torch.nn.Linear(2, 2)
    for _ in range(18):
        module.model.register_forward_hook(lambda *_, held=kept: None)
    module.history = [(1, kept), (2, kept)]
    module.best = types.SimpleNamespace(tensor=kept)
    module.cache = {"a": kept}
    module.last = kept
    return cyclescope.why_alive(kept).to_html()


def test_eighteen_hooks_are_one_box_and_on_a_phone_an_outline(hooked: str, open_page: Open) -> None:
    opened = open_page(hooked, viewport={"width": 1440, "height": 900})
    drawing = opened.page.locator(".drawn svg")
    expect(drawing).to_contain_text("18 × function")
    expect(drawing).to_contain_text("[x] × 18")
    place = drawing.bounding_box()
    assert place is not None
    assert place["y"] + place["height"] < 900, "the first view has the drawing"
    opened.page.set_viewport_size({"width": 390, "height": 900})
    expect(drawing).to_be_hidden()
    lines = opened.page.locator(".outline:visible li")
    expect(lines.filter(has_text="module hooked")).to_have_count(1)
    expect(lines.filter(has_text="[x] × 18 → 18 × function")).to_have_count(1)
    expect(lines.locator(".cut").filter(has_text="× 18")).to_have_count(1)
    expect(opened.page.locator(".outline .asked").first).to_have_text("■")
    assert lines.count() < 30
    expect(opened.page.locator(".drawn-narrow svg")).to_have_count(0)


@pytest.mark.parametrize("width", [1440, 1300, 1100])
def test_letters_of_what_is_drawn_are_legible_at_every_width(
    width: int, module: Any, open_page: Open
) -> None:
    module.net = torch.nn.Linear(64, 64)
    module.optimizer = torch.optim.Adam(module.net.parameters())
    module.history = []
    for _ in range(2):
        loss = module.net(torch.randn(8, 64)).square().mean()
        loss.backward()
        module.optimizer.step()
        module.history.append(loss)
    page = cyclescope.why_alive(module.net.weight).to_html()
    opened = open_page(page, viewport={"width": width, "height": 900})
    letters = opened.page.locator(".drawn:visible .name, .drawn-narrow:visible .name")
    assert letters.count() + opened.page.locator(".outline:visible li").count() > 3
    heights: Any = letters.evaluate_all("all => all.map((one) => 12 * one.getCTM().a)")
    assert all(height >= 9 for height in heights), heights


def test_a_chain_stays_a_drawing_on_a_phone(module: Any, open_page: Open) -> None:
    module.held = {"one": [torch.zeros(MIB)]}
    page = cyclescope.why_alive(module.held["one"][0]).to_html()
    opened = open_page(page, viewport={"width": 390, "height": 900})
    assert (
        opened.page.locator(".outline").count()
        + opened.page.locator(".drawn-narrow svg:visible").count()
        == 1
    )


def test_the_answer_of_a_heap_and_of_a_diff_is_an_object_not_its_module(
    module: Any, open_page: Open
) -> None:
    before = cyclescope.heap()
    module.loader = types.SimpleNamespace(
        queue=[numpy.zeros(MIB, dtype=numpy.uint8) for _ in range(40)],
        other=[numpy.zeros(MIB, dtype=numpy.uint8) for _ in range(30)],
    )
    others = [types.ModuleType(f"plugin{index}") for index in range(6)]
    for other in others:
        other.state = [numpy.zeros(6 * MIB, dtype=numpy.uint8)]  # type: ignore[attr-defined]
    sys.modules |= {other.__name__: other for other in others}
    try:
        after = cyclescope.heap()
    finally:
        for other in others:
            del sys.modules[other.__name__]
    for page in (after.to_html(), after.diff(before).to_html()):
        expect(open_page(page).page.locator("p.lead")).to_contain_text("loader")


def test_the_first_sentence_names_place_and_cycle_of_a_single_leak(
    report: cyclescope.CycleReport, open_page: Open
) -> None:
    lead = open_page(report.to_html()).page.locator("p.lead")
    (leak,) = report.leaks
    expect(lead.locator("b")).to_contain_text("One leak holds all of it, at ")
    expect(lead.locator("code")).to_have_text(leak.summary)


def test_the_first_sentence_of_merged_reports_says_on_which_ranks(open_page: Open) -> None:
    lead = open_page(gallery.of_ranks(8).to_html()).page.locator("p.lead b")
    expect(lead).to_have_text(re.compile(", on all 8 ranks$"))


@pytest.mark.parametrize(
    ("size", "said"), [(None, "ranks that reported"), (5, "ranks that reported, of 5")]
)
def test_a_rank_that_wrote_no_report_is_not_counted_among_all(
    size: int | None, said: str, open_page: Open
) -> None:
    data = json.loads(gallery.of_ranks(4).to_json())
    data["process"]["world_size"] = size
    report = cyclescope.CycleReport.from_json(json.dumps(data))
    lead = open_page(report.to_html()).page.locator("p.lead b")
    expect(lead).to_have_text(re.compile(f", on all 4 {said}$"))


def test_long_names_are_short_in_sentences_and_each_is_there(open_page: Open) -> None:
    long = "very_long_attribute_name_" * 12

    def leak() -> None:
        holder = type("Transformer" * 27, (), {})()
        setattr(holder, long, torch.zeros(MIB))
        setattr(holder, "owner_" + long, [holder])

    with common.collector_paused():
        leak()
        report = cyclescope.find_tensor_cycles(devices="any")
    opened = open_page(report.to_html(), viewport={"width": 1440, "height": 900})
    for part in ("p.lead", ".gist .fix", ".gist"):
        text = opened.page.locator(part).first.inner_text()
        assert ".owner_very_" in text
        assert max(map(len, text.replace(".", " ").split())) <= 84, text
    place: Any = opened.page.locator(".gist .fix").first.bounding_box()
    assert place["height"] < 150


def test_leaks_that_hold_the_same_memory_are_links(open_page: Open) -> None:
    report = dense()
    data = json.loads(report.to_json())
    if len(data["leaks"]) < 2:
        pytest.skip("one leak holds all of it")
    opened = open_page(report.to_html())
    link = opened.page.locator("section.leak:not([hidden]) .gist a[href^='#']").first
    target = str(link.get_attribute("href"))[1:]
    link.click()
    expect(opened.page.locator("section.leak:not([hidden])")).to_have_attribute("id", target)


def test_nothing_empty_is_shown_of_an_out_of_memory_error(open_page: Open) -> None:
    found = json.loads(gallery.out_of_memory().to_json())
    found |= {"verdict": "too-large", "trace": "", "owners": []}
    found["cycles"] = {"what": "", "bytes": 0}
    page = cyclescope._native.PostMortem.from_json(json.dumps(found)).to_html()
    opened = open_page(page)
    expect(opened.page.locator("h2")).to_have_text(
        ["Memory when the request failed", "Requested at"]
    )


def test_the_leak_comes_first_where_cycles_held_the_memory(open_page: Open) -> None:
    page = gallery.pages("oom")["oom"]
    headings = open_page(page).page.locator("h2").all_inner_texts()
    assert "held by a reference cycle" in headings[0]
    assert headings[1:4] == [
        "Memory when the request failed",
        "Unreachable cycles hold 9.5 GiB",
        "Requested at",
    ]


def test_a_growing_owner_is_named_in_few_words_and_then_in_full(open_page: Open) -> None:
    opened = open_page(gallery.pages("growth")["growth"])
    expect(opened.page.locator("section.leak h2").first).to_contain_text("Log.entries accumulates")
    expect(opened.page.locator(".gist").first).to_contain_text("local log in _train")


def test_a_wide_drawing_is_an_outline_where_its_names_could_not_be_read(
    hooked: str, open_page: Open
) -> None:
    opened = open_page(hooked, viewport={"width": 1024, "height": 900})
    drawing = opened.page.locator(".drawn svg")
    if drawing.is_visible():
        scale = drawing.evaluate(
            "svg => svg.getBoundingClientRect().width / svg.viewBox.baseVal.width"
        )
        assert 12 * scale >= 8
    else:
        expect(opened.page.locator(".outline")).to_be_visible()


def test_a_printed_heap_has_tables(module: Any, open_page: Open) -> None:
    module.kept = [numpy.zeros(MIB, dtype=numpy.uint8)]
    opened = open_page(cyclescope.heap().to_html(), viewport={"width": 688, "height": 1000})
    opened.page.emulate_media(media="print")
    heads = opened.page.locator(".figures thead").first
    expect(heads).to_be_visible()
    place = heads.bounding_box()
    assert place is not None
    assert place["width"] > 300
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 688
