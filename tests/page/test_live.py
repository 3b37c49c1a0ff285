"""The pages of live memory: owners as a treemap, what grows, why memory ran out."""

from __future__ import annotations

import colorsys
import json
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
from playwright.sync_api import Locator, expect

import cyclescope
from cyclescope import _native
from support import gallery
from support.browser import Open, Opened, contrast
from support.markup import CORPUS
from support.reports import leaked

MIB = 1 << 20
SAMPLES = [(step, step // 2, step * MIB) for step in range(10, 400, 10)]


class Trainer:
    """Owns a little of everything."""

    def __init__(self) -> None:
        self.weights = {"first": array(8), "second": array(4)}
        self.history = [(array(1), index) for index in range(6)]
        self.small = [array(0.002) for _ in range(2000)]


def array(mebibytes: float) -> Any:
    return numpy.zeros(int(mebibytes * MIB), dtype=numpy.uint8)


@pytest.fixture(scope="module")
def trainer() -> Iterator[None]:
    module = types.ModuleType("training")
    module.trainer = Trainer()  # type: ignore[attr-defined]
    sys.modules["training"] = module
    yield
    del sys.modules["training"]


@pytest.fixture(scope="module")
def heap(trainer: None) -> cyclescope.Heap:
    return cyclescope.heap()


@pytest.fixture(scope="module")
def page(heap: cyclescope.Heap) -> str:
    return heap.to_html()


def growth(text: str = "") -> _native.GrowthReport:
    found = {
        "pattern": "kept-with-graph",
        "owner": f"train.history{text}",
        "summary": f"`train.history` accumulates tensors with their graphs{text}",
        "advice": f"Store `.item()`{text}",
        "step": 130,
        "tensors": 65,
        "bytes": 130 * MIB,
        "bytes_per_step": MIB,
        "example": f"float32[] on cuda:0{text}",
        "history": SAMPLES,
        "added_at": [
            {
                "file": "/srv/train.py",
                "line": 12,
                "lines": ["    history.append(loss)"],
                "marked": 12,
                "start": 4,
                "end": 24,
            }
        ],
    }
    report = {"steps": 390, "samples": 39, "found": [found], "all": SAMPLES}
    return _native.GrowthReport.from_json(json.dumps(report))


def post_mortem(text: str = "") -> _native.PostMortem:
    found = {
        "verdict": f"kept-graphs{text}",
        "headline": f"`history` keeps 600 MiB{text}",
        "advice": f"Store `.item()`{text}",
        "device": f"cuda:0{text}",
        "numbers": {
            "requested": 512 * MIB,
            "limit": 2048 * MIB,
            "reserved": 1900 * MIB,
            "allocated": 1700 * MIB,
            "free_in_blocks": 200 * MIB,
        },
        "roles": {"parameters": 700 * MIB, f"gradients{text}": 900 * MIB},
        "graphs": [{"what": f"history{text}", "bytes": 600 * MIB, "would_fit": True}],
        "trace": f"LEAK 1 of 1{text}",
        "cycles": {"what": "", "bytes": MIB},
        "requested_at": [f"train.py:12 step{text}"],
        "left_out": [f"what grew{text}"],
    }
    return _native.PostMortem.from_json(json.dumps(found))


@pytest.fixture(scope="module")
def pages(heap: cyclescope.Heap, page: str) -> dict[str, str]:
    kept = sys.modules["training"].trainer.history
    return {
        "heap": page,
        "diff": heap.diff(cyclescope.heap()).to_html(),
        "retention": cyclescope.why_alive(kept).to_html(),
        "growth": growth().to_html(),
        "post-mortem": post_mortem().to_html(heap, growth()),
    }


def block(opened: Opened, name: str) -> Locator:
    return opened.page.locator("svg.icicle > .block").filter(has_text=name).first


def width(element: Locator) -> float:
    return float(element.evaluate("element => element.width.baseVal.value"))


def chosen(opened: Opened) -> str:
    return opened.page.locator(".block.chosen title").text_content() or ""


def trail(opened: Opened) -> list[str]:
    return opened.page.locator(".trail button").all_text_contents()


CATEGORIES = (
    "parameter",
    "gradient",
    "optimizer-state",
    "activation",
    "input",
    "other",
    "several",
    "garbage",
)
KINDS = ["heap", "diff", "retention", "growth", "post-mortem"]


@pytest.mark.parametrize("kind", KINDS)
def test_opens_from_a_file_without_complaint_or_request(
    pages: dict[str, str], open_page: Open, kind: str
) -> None:
    opened = open_page(pages[kind])
    opened.page.wait_for_load_state("networkidle")
    assert opened.complaints == []
    assert opened.requests == [opened.page.url]
    expect(opened.page.locator("h1")).not_to_be_empty()
    assert len(pages[kind].encode()) < 300_000


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [320, 760])
def test_a_narrow_window_scrolls_in_one_direction_only(
    pages: dict[str, str], open_page: Open, kind: str, width: int
) -> None:
    opened = open_page(pages[kind], viewport={"width": width, "height": 800})
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width


def test_every_level_is_as_wide_as_the_one_above(page: str, open_page: Open) -> None:
    opened = open_page(page, viewport={"width": 1300, "height": 900})
    blocks = json.loads(opened.page.evaluate("dataText()"))["blocks"]
    assert 100 < len(blocks) <= 500
    drawn = opened.page.locator("svg.icicle > .block").evaluate_all(
        "all => all.map(one => one.checkVisibility() ? one.width.baseVal.value : 0)"
    )
    below: dict[int, list[int]] = {}
    for index, each in enumerate(blocks):
        below.setdefault(each["parent"], []).append(index)
    for index, children in ((key, value) for key, value in below.items() if key is not None):
        assert sum(blocks[child]["bytes"] for child in children) == blocks[index]["bytes"]
        visible = [child for child in children if drawn[child] > 0]
        if len(visible) == len(children):
            assert sum(drawn[child] for child in children) == pytest.approx(drawn[index], abs=0.5)
    rest = [each for each in blocks if each["kind"] == "rest"]
    assert any(re.fullmatch(r"\+ 1,\d{3} more", each["label"]) for each in rest)


def test_the_widths_are_those_of_the_heap(
    heap: cyclescope.Heap, page: str, open_page: Open
) -> None:
    blocks = json.loads(open_page(page).page.evaluate("dataText()"))["blocks"]
    assert blocks[0]["bytes"] == heap.host_bytes
    (mine,) = [each for each in blocks if each["edge"] == ".weights"]
    assert mine["bytes"] == mine["retained"] == 12 * MIB


def test_a_click_enlarges_a_block_and_the_trail_leads_back(page: str, open_page: Open) -> None:
    opened = open_page(page)
    whole = width(opened.page.locator("svg.icicle"))
    assert width(block(opened, ".weights")) < 0.9 * whole
    block(opened, ".weights").click()
    assert width(block(opened, ".weights")) == pytest.approx(whole, abs=1)
    assert trail(opened)[1:] == [
        "module training",
        ".trainer (Trainer)",
        ".weights (dict, 2 items)",
    ]
    expect(block(opened, "['second']").locator("text")).to_be_visible()
    expect(block(opened, ".history")).to_be_hidden()
    opened.page.locator(".trail button").first.click()
    expect(block(opened, ".history")).to_be_visible()
    assert len(trail(opened)) == 1


def test_the_chosen_block_is_told_with_the_way_to_it(page: str, open_page: Open) -> None:
    opened = open_page(page)
    facts = opened.page.locator(".facts-of-block")
    expect(facts).to_contain_text("Point at a block")
    block(opened, "['first']").hover()
    for told in ("8.0 MiB", "uint8[8388608] on cpu", "Retained size"):
        expect(facts).to_contain_text(told)
    way = facts.locator(".way li").all_text_contents()
    assert [line.split(" test_live")[0].split(" /")[0] for line in way] == [
        "module training",
        "↓ .trainer",
        "Trainer",
        "↓ .weights",
        "dict, 2 items",
        "↓ ['first']",
        "ndarray",
    ]


def test_the_keyboard_does_it_all(page: str, open_page: Open) -> None:
    opened = open_page(page)
    press = opened.page.keyboard.press
    opened.page.locator("svg.icicle").focus()
    press("ArrowDown")
    assert chosen(opened).startswith("module training")
    press("ArrowDown")
    press("ArrowDown")
    first = chosen(opened)
    assert first.startswith(".weights (dict, 2 items), 12.0 MiB")
    press("ArrowRight")
    assert chosen(opened).startswith(".history (list, 6 items), 6.0 MiB")
    press("ArrowLeft")
    assert chosen(opened) == first
    press("Enter")
    assert trail(opened)[-1] == ".weights (dict, 2 items)"
    press("ArrowUp")
    assert chosen(opened).startswith(".trainer (Trainer)")
    press("Escape")
    assert trail(opened)[-1] == ".trainer (Trainer)"
    press("Backspace")
    assert trail(opened)[-1] == "module training"
    press("Home")
    assert len(trail(opened)) == 1
    active = opened.page.locator("svg.icicle").get_attribute("aria-activedescendant")
    expect(opened.page.locator(f"#{active}")).to_have_attribute("aria-selected", "true")


def test_a_screen_reader_is_told_of_blocks_and_levels(page: str, open_page: Open) -> None:
    opened = open_page(page)
    tree = opened.page.get_by_role("tree", name="Owners of memory")
    expect(tree).to_have_count(1)
    name = re.compile(r"\.weights \(dict, 2 items\), 12\.0 MiB, other")
    item = tree.get_by_role("treeitem", name=name)
    expect(item).to_have_attribute("aria-level", "4")


def test_works_without_javascript(pages: dict[str, str], open_page: Open) -> None:
    opened = open_page(pages["heap"], java_script_enabled=False)
    expect(block(opened, ".weights")).to_be_visible()
    expect(opened.page.get_by_role("button")).to_have_count(0)
    expect(opened.page.locator("main")).to_contain_text("['first'] (ndarray)")
    assert opened.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_names_are_readable_on_all_colours(page: str, open_page: Open, scheme: str) -> None:
    opened = open_page(page, color_scheme=scheme)
    ink = opened.style(".block text", "fill")
    for name in CATEGORIES:
        ground = opened.page.evaluate(
            """name => {
              const probe = document.body.appendChild(document.createElement("i"));
              probe.style.color = `var(--${name})`;
              return getComputedStyle(probe).color;
            }""",
            name,
        )
        assert contrast(ink, ground) >= 4.5, name
    assert contrast(opened.style("body", "color"), opened.style("body", "backgroundColor")) >= 7


def test_light_and_dark_differ(page: str, open_page: Open) -> None:
    light, dark = (open_page(page, color_scheme=scheme) for scheme in ("light", "dark"))
    for selector, name in [("body", "backgroundColor"), (".block.other rect", "fill")]:
        assert light.style(selector, name) != dark.style(selector, name)


def test_on_paper_there_are_no_tools(page: str, open_page: Open) -> None:
    opened = open_page(page, viewport={"width": 688, "height": 1000})
    block(opened, ".weights").click()
    opened.page.emulate_media(media="print")
    expect(opened.page.locator(".trail:visible, .facts-of-block:visible")).to_have_count(0)
    expect(block(opened, ".weights")).to_be_visible()
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 688
    assert opened.page.pdf().startswith(b"%PDF")


def test_the_growth_chart_has_axes_and_a_point_for_each_sample(
    pages: dict[str, str], open_page: Open
) -> None:
    opened = open_page(pages["growth"])
    expect(opened.page.locator("svg.chart")).to_have_count(2)
    chart = opened.page.locator("svg.chart").first
    for told in ("by step", "400.0 MiB", "200.0 MiB", "0 bytes", "10", "200", "390", "reported"):
        expect(chart.get_by_text(told, exact=True)).to_be_visible()
    expect(chart.locator(".dot")).to_have_count(len(SAMPLES))
    heights = chart.locator(".dot").evaluate_all(
        "all => all.map(dot => Number(dot.attributes.cy.value))"
    )
    assert heights == sorted(heights, reverse=True)


@pytest.mark.parametrize("kind", ["growth", "post-mortem"])
def test_the_line_is_copied_and_opens_in_an_editor(
    pages: dict[str, str], open_page: Open, kind: str
) -> None:
    opened = open_page(pages[kind], permissions=["clipboard-read", "clipboard-write"])
    opened.page.get_by_role("button", name="Copy file:line").click()
    expect(opened.page.locator('[data-copy="place"]')).to_have_text("Copied")
    assert opened.page.evaluate("navigator.clipboard.readText()") == "/srv/train.py:12"
    link = opened.page.get_by_role("link", name="Open")
    expect(link).to_have_attribute("href", "vscode://file//srv/train.py:12")
    opened.page.get_by_label("Open in").select_option("PyCharm")
    expect(link).to_have_attribute("href", "pycharm://open?file=/srv/train.py&line=12")
    without = open_page(pages[kind], java_script_enabled=False)
    expect(without.page.get_by_label("Open in")).to_be_hidden()


def test_a_chart_is_read_out_and_enlarged(pages: dict[str, str], open_page: Open) -> None:
    opened = open_page(pages["growth"])
    chart = opened.page.locator("svg.chart").first
    said = opened.page.locator(".said").first
    expect(said).to_contain_text("Point at the curve")
    chart.focus()
    press = opened.page.keyboard.press
    press("ArrowRight")
    expect(said).to_have_text("step 10: 10.0 MiB")
    press("ArrowRight")
    expect(said).to_have_text("step 20: 20.0 MiB")
    whole = chart.locator(".curve").get_attribute("d")
    press("+")
    assert chart.locator(".curve").get_attribute("d") != whole
    press("Escape")
    box = chart.bounding_box()
    assert box is not None
    right = (box["x"] + box["width"] * 886 / 900, box["y"] + 50)
    opened.page.mouse.move(*right)
    expect(said).to_have_text("step 390: 390.0 MiB")
    dots = chart.locator(".dot")
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + box["width"] * 0.7, right[1], steps=3)
    opened.page.mouse.up()
    shown = dots.evaluate_all("all => all.filter(one => one.checkVisibility()).length")
    assert 5 < shown < 15
    # The ends of what is shown, and the values as before.
    ends = chart.locator("g > text")
    expect(ends).to_have_text([re.compile(rf"step {each}0") for each in (r"2\d", "3[89]", r"3\d")])
    for told, seen in (("200.0 MiB", True), ("by step", True), ("100", False), ("reported", False)):
        expect(chart.get_by_text(told, exact=True)).to_be_visible(visible=seen)
    opened.page.mouse.dblclick(*right)
    assert dots.evaluate_all("all => all.every(one => one.checkVisibility())")
    expect(ends).to_have_count(0)
    assert float(opened.style("svg.chart", "outlineOffset").removesuffix("px")) < 0


@pytest.mark.parametrize("width", [1440, 390, 320])
def test_a_chart_is_shown_whole_and_its_words_stand_apart(
    pages: dict[str, str], open_page: Open, width: int
) -> None:
    opened = open_page(pages["growth"], viewport={"width": width, "height": 800})
    chart = opened.page.locator("svg.chart").first
    expect(chart).to_have_class("chart fitted")
    opened.page.wait_for_timeout(200)
    boxes: Any = chart.evaluate("""svg => [...svg.querySelectorAll(".dot, text")]
      .filter((each) => each.checkVisibility())
      .map((each) => [each.textContent, each.getBoundingClientRect().toJSON()])""")
    for words, box in boxes:
        assert box["left"] >= 0, words
        assert box["right"] <= width, words
    texts = [(words, box) for words, box in boxes if words]
    assert {"10", "390", "0 bytes", "400.0 MiB", "reported"} <= {words for words, _ in texts}
    assert min(box["height"] for _, box in texts) >= 10
    for index, (words, box) in enumerate(texts):
        for other, beside in texts[index + 1 :]:
            apart = (
                box["right"] <= beside["left"]
                or beside["right"] <= box["left"]
                or box["bottom"] <= beside["top"] + 4
                or beside["bottom"] <= box["top"] + 4
            )
            assert apart, (words, other)


def test_a_finger_reads_a_chart(pages: dict[str, str], open_page: Open) -> None:
    opened = open_page(
        pages["growth"], viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True
    )
    said = opened.page.locator(".said").first
    expect(said).to_have_text("Tap the curve for its values.")
    chart = opened.page.locator("svg.chart").first
    chart.scroll_into_view_if_needed()
    chart.locator(".dot").last.tap(force=True)
    expect(said).to_have_text("step 390: 390.0 MiB")


def test_on_a_phone_each_value_of_a_table_is_named(pages: dict[str, str], open_page: Open) -> None:
    opened = open_page(pages["diff"], viewport={"width": 390, "height": 800})
    cells = opened.page.locator(".figures tr").nth(1).locator("td")
    named = cells.evaluate_all("all => all.map(it => getComputedStyle(it, '::before').content)")
    assert named[:4] == ['"Change"', '"Before"', '"After"', '"Buffers"']
    opened.page.set_viewport_size({"width": 1000, "height": 800})
    assert cells.first.evaluate("it => getComputedStyle(it, '::before').content") == "none"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_red_is_for_cuts_only(pages: dict[str, str], open_page: Open, scheme: str) -> None:
    opened = open_page(pages["post-mortem"], color_scheme=scheme)
    colours = opened.page.evaluate(
        """() => ["p3", "layer1"].map((name) => {
          const probe = document.body.appendChild(document.createElement("i"));
          probe.className = name;
          if (name === "layer1") probe.style.color = "var(--tint)";
          return getComputedStyle(probe).color;
        })"""
    )
    colours.append(opened.style(".bars .asked rect", "fill"))
    for colour in colours:
        red, green, blue = (int(number) / 255 for number in re.findall(r"\d+", colour)[:3])
        assert 20 < 360 * colorsys.rgb_to_hsv(red, green, blue)[0] < 330, colour


def test_memory_is_stacked_by_what_grows(open_page: Open) -> None:
    opened = open_page(gallery.growth("metrics_kept", 100).to_html())
    chart = opened.page.locator("svg.chart").last
    areas = chart.locator(".area")
    assert areas.count() >= 2
    names = opened.page.locator(".key .layer").all_text_contents()
    assert names[-1].startswith("all other tensors")
    assert len(names) == areas.count()
    colours = {area.evaluate("it => getComputedStyle(it).fill") for area in areas.all()}
    assert len(colours) == areas.count()
    chart.focus()
    whole = areas.last.get_attribute("d")
    opened.page.keyboard.press("ArrowRight")
    expect(opened.page.locator(".said").last).to_contain_text(f"{names[-1]}, step ")
    opened.page.keyboard.press("+")
    assert areas.last.get_attribute("d") != whole
    opened.page.keyboard.press("Escape")
    assert opened.complaints == []


def test_the_leak_is_the_first_of_a_post_mortem_that_it_caused(open_page: Open) -> None:
    report = leaked("awaitable_leak")
    opened = open_page(gallery.out_of_memory().to_html(None, None, report))
    first = opened.page.locator("section.leak").first
    expect(first.locator(".label.cut .scissors").first).to_be_visible()
    expect(first.locator(".gist")).to_contain_text("Fix")
    expect(first.locator(".drawn .node.held")).to_be_visible()
    opened.page.set_viewport_size({"width": 390, "height": 900})
    expect(first.locator(".drawn-narrow .node.held")).to_be_visible()
    expect(first.locator(".drawn .node.held")).to_be_hidden()


def test_the_post_mortem_shows_the_request_to_scale(pages: dict[str, str], open_page: Open) -> None:
    opened = open_page(pages["post-mortem"])
    bars = opened.page.locator(".bars .block")
    asked, last = bars.and_(opened.page.locator(".asked")), bars.and_(opened.page.locator(".free"))
    for start, end in zip(asked.all(), last.all(), strict=True):
        # What does not fit begins where what is used ends, and reaches beyond the limit.
        beside, used = start.bounding_box(), end.bounding_box()
        limit = opened.page.locator(".bars .limit").bounding_box()
        assert beside is not None
        assert used is not None
        assert limit is not None
        assert beside["x"] == pytest.approx(used["x"] + used["width"], abs=2)
        assert beside["x"] < limit["x"] < beside["x"] + beside["width"]
    ratio = width(bars.and_(opened.page.locator(".asked"))) / width(
        bars.and_(opened.page.locator(".parameter"))
    )
    assert ratio == pytest.approx(512 / 700, rel=0.02)
    expect(opened.page.locator("svg.icicle")).to_be_visible()
    expect(opened.page.locator("svg.chart").first).to_be_visible()


@pytest.mark.parametrize("text", CORPUS.values(), ids=list(CORPUS))
def test_hostile_text_stays_text(heap: cyclescope.Heap, open_page: Open, text: str) -> None:
    for page in (
        growth(text).to_html(),
        post_mortem(text).to_html(None, growth(text)),
    ):
        check_harmless(open_page(page))


def test_what_keeps_an_object_alive_is_drawn(open_page: Open) -> None:
    class Trainer: ...

    trainer: Any = Trainer()
    trainer.best = trainer.last = array(4)
    page = open_page(cyclescope.why_alive(trainer.best).to_html()).page
    drawing = page.locator(".drawn svg")
    expect(drawing.locator(".node")).to_have_count(3)
    expect(drawing.locator(".node.held .size")).to_have_text("4.0 MiB")
    expect(drawing.locator(".label.cut .ref")).to_have_text([".best", ".last"])
    for width in (390, 1024, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_hostile_names_of_a_program_stay_text(open_page: Open) -> None:
    text = "\n".join(CORPUS.values()).replace("\x00", "")
    kind = type(text, (), {"__module__": text})
    owner: Any = kind()
    setattr(owner, text, {text: [array(4), array(2)]})
    before = cyclescope.heap()
    module = types.ModuleType(text)
    module.__dict__[text] = owner
    getattr(owner, text)[text].append(array(8))
    sys.modules[text] = module
    try:
        after = cyclescope.heap()
        kept = cyclescope.why_alive(getattr(owner, text))
    finally:
        del sys.modules[text]
    opened = open_page(after.to_html())
    for each in opened.page.locator("svg.icicle > .block:visible").all()[:40]:
        each.dispatch_event("pointerover")
    opened.page.locator("svg.icicle").focus()
    for key in ("ArrowDown", "ArrowDown", "Enter", "ArrowDown", "Enter"):
        opened.page.keyboard.press(key)
    check_harmless(opened)
    check_harmless(open_page(after.diff(before).to_html()))
    check_harmless(open_page(kept.to_html()))


def check_harmless(opened: Opened) -> None:
    assert opened.page.evaluate("window.injected") is None
    expect(opened.page.locator("#injected, img, b[id]")).to_have_count(0)
    expect(opened.page.locator("style")).to_have_count(1)
    expect(opened.page.get_by_text("<img src=x").first).to_be_attached()
    assert opened.complaints == []
    assert opened.requests == [opened.page.url]


def test_injected_script_does_not_run(page: str, open_page: Open) -> None:
    injection = (
        "<script>window.injected = 1</script><img src='data:,' onerror='window.injected=2'>"
        "<p onclick='window.injected=3' style='color: rgb(1, 2, 3)'>mine</p>"
    )
    opened = open_page(page.replace("</main>", f"{injection}</main>"))
    opened.page.get_by_text("mine", exact=True).click()
    assert opened.page.evaluate("window.injected") is None
    assert opened.style("main > p", "color") != "rgb(1, 2, 3)"
    assert any("Content Security Policy" in complaint for complaint in opened.complaints)
    block(opened, ".weights").click()
    assert trail(opened)[-1] == ".weights (dict, 2 items)"


def test_in_a_notebook_it_is_a_frame_that_works(heap: cyclescope.Heap, open_page: Open) -> None:
    opened = open_page(f"<!doctype html><body>{heap._repr_html_()}")
    frame = opened.page.frame_locator("iframe")
    frame.locator("svg.icicle > .block").filter(has_text=".weights").first.click()
    expect(frame.locator(".trail button").last).to_have_text(".weights (dict, 2 items)")
    assert opened.complaints == []


@pytest.mark.parametrize("width", [1440, 390])
def test_no_word_in_a_block_is_cut_off(pages: dict[str, str], open_page: Open, width: int) -> None:
    opened = open_page(pages["heap"], viewport={"width": width, "height": 900})
    ends = """all => all.filter((text) => text.checkVisibility() && text.textContent)
      .map((text) => [text.textContent, text.getBoundingClientRect().right,
        text.parentElement.querySelector("rect").getBoundingClientRect().right])"""
    texts = opened.page.locator("svg.icicle text")
    expect(opened.page.locator(".live svg.icicle")).to_be_visible()
    opened.page.wait_for_timeout(200)
    assert texts.count() > 5
    assert [each for each in texts.evaluate_all(ends) if each[1] > each[2] + 1] == []
    opened.page.set_viewport_size({"width": width - 50, "height": 900})
    opened.page.wait_for_timeout(200)
    assert [each for each in texts.evaluate_all(ends) if each[1] > each[2] + 1] == []
