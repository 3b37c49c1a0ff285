"""Of a large drawing, is only what is in sight laid out, and is nothing lost by that?"""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

import cyclescope
from support.browser import Open, Opened

AWAY = ".node.away"
# Elements that are laid out, of those that are lines, boxes and names.
LAID_OUT = """drawing => [...drawing.querySelectorAll(":is(.lines, .boxes, .names) > g")]
  .filter(element => element.getBoundingClientRect().width > 0).length"""
STATE = """drawing => [drawing.style.transform,
  drawing.querySelector(".node.selected")?.dataset.node,
  drawing.querySelectorAll(".away").length]"""


def everything(opened: Opened) -> None:
    opened.show("Everything")
    expect(opened.drawing.locator(".node[data-node]")).to_have_count(2000)


def fit(opened: Opened) -> None:
    opened.button("Fit").click()
    expect(opened.drawing.locator(".outlines")).to_be_attached()


def zoom_to(opened: Opened, target: Locator, times: int) -> None:
    target.scroll_into_view_if_needed()
    box = target.bounding_box()
    assert box is not None
    opened.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    opened.page.keyboard.down("Control")
    for _ in range(times):
        opened.page.mouse.wheel(0, -72)
        opened.page.evaluate("() => new Promise(requestAnimationFrame)")
    opened.page.keyboard.up("Control")


def pressed(page: Page, name: str, times: int) -> None:
    for _ in range(times):
        page.keyboard.press(name)


def test_only_what_is_in_sight_is_laid_out(large: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(large.to_html())
    everything(opened)
    seen = opened.drawing.evaluate(LAID_OUT)
    assert 0 < seen < 200
    assert opened.drawing.locator(AWAY).count() > 1900
    # A smaller drawing is laid out as a whole.
    opened.show("The leak")
    assert opened.drawing.locator(".away").count() == 0
    # What comes into sight is laid out, and what leaves it is no longer.
    everything(opened)
    opened.drawing.focus()
    pressed(opened.page, "ArrowRight", 6)
    expect(opened.drawing.locator(".node.selected")).to_be_visible()
    expect(opened.drawing.locator(".boxes > .ring.away")).to_have_count(2)


def test_from_afar_it_is_outlines(large: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(large.to_html())
    everything(opened)
    fit(opened)
    assert opened.drawing.evaluate(LAID_OUT) == 0
    # Of each kind of box and line one, which has all of them.
    plain = opened.drawing.locator(".outlines .object:not(.ring) .box")
    assert str(plain.get_attribute("d")).count("M") > 1900
    for kind in ("held", "ring", "cut"):
        expect(opened.drawing.locator(f".outlines .{kind}").first).to_be_attached()
    # What is found is marked there, what is chosen there is drawn as ever.
    opened.page.get_by_placeholder("Find an object").fill("node 7")
    expect(opened.drawing.locator(".outlines .match .box")).to_have_count(1)
    expect(opened.drawing.locator(".outlines .dim .box").first).to_be_attached()
    held = opened.drawing.locator(".outlines .held .box")
    zoom_to(opened, held, 8)
    held.click()
    expect(opened.facts).to_contain_text("2,097,152 bytes on cpu")
    expect(opened.drawing.locator(".node.selected.held")).to_be_visible()
    for _ in range(20):
        opened.button("Zoom in").click()
    expect(opened.drawing.locator(".outlines")).not_to_be_attached()


def test_dark_for_light_changes_only_the_colours(
    large: cyclescope.CycleReport, open_page: Open
) -> None:
    opened = open_page(large.to_html())
    everything(opened)
    opened.drawing.locator(".node.ring").first.click()
    expect(opened.drawing.locator(".node.selected")).to_be_visible()
    expect(opened.drawing.locator(".node.dim").first).to_be_attached()
    for afar in (False, True):
        if afar:
            fit(opened)
        expect(opened.drawing.locator(".node.selected rect")).to_be_visible()
        before = opened.drawing.evaluate(STATE), opened.style(".node.selected rect", "fill")
        opened.page.emulate_media(color_scheme="dark")
        assert opened.style(".node.selected rect", "fill") != before[1]
        assert opened.drawing.evaluate(STATE) == before[0]
        opened.page.emulate_media(color_scheme="light")
        assert opened.style(".node.selected rect", "fill") == before[1]


def test_paper_has_all_of_it(large: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(large.to_html())
    everything(opened)
    fit(opened)
    opened.page.evaluate("""() => addEventListener("beforeprint", () => {
      const drawing = document.querySelector("svg.leak-drawing");
      window.printed = drawing.querySelectorAll(".away, .outlines").length;
    })""")
    opened.page.pdf()
    assert opened.page.evaluate("printed") == 0
    expect(opened.drawing.locator(AWAY)).to_have_count(2000)
    expect(opened.drawing.locator(".outlines")).to_be_attached()
