"""Can all of the page be used without a mouse, and read by who does not see it?"""

from __future__ import annotations

import re

from playwright.sync_api import expect

import cyclescope
from support.browser import Open, Opened

TENSOR = ("torch.Tensor", "numpy.ndarray")


def selected(opened: Opened) -> str:
    return opened.drawing.locator(".node.selected title").text_content() or ""


def test_arrows_go_along_references(report: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(report.to_html())
    opened.drawing.focus()
    press = opened.page.keyboard.press
    press("ArrowRight")
    assert selected(opened).startswith("awaitable_leak.AwaitableTensorWithViewCallBack")
    press("ArrowRight")
    assert selected(opened).startswith("awaitable_leak.AwaitableTensor\n")
    press("ArrowRight")
    assert selected(opened).startswith(TENSOR)
    expect(opened.facts).to_contain_text("2,097,152 bytes on cpu")
    press("ArrowRight")
    assert selected(opened).startswith(TENSOR), "there is nothing further"
    for _ in range(3):
        press("ArrowLeft")
    assert selected(opened).startswith("function ")


def test_arrows_keep_the_chosen_object_in_sight(
    large: cyclescope.CycleReport, open_page: Open
) -> None:
    opened = open_page(large.to_html())
    opened.show("Everything")
    for _ in range(3):
        opened.button("Zoom in").click()
    opened.drawing.focus()
    for _ in range(6):
        opened.page.keyboard.press("ArrowRight")
    view = opened.page.locator("section.leak .view").bounding_box()
    chosen = opened.drawing.locator(".node.selected").bounding_box()
    assert view is not None
    assert chosen is not None
    assert view["x"] <= chosen["x"] + chosen["width"] / 2 <= view["x"] + view["width"]


def test_slash_searches_and_escape_ends_it(report: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(report.to_html())
    opened.page.keyboard.press("/")
    field = opened.page.get_by_placeholder("Find an object")
    expect(field).to_be_focused()
    opened.page.keyboard.type("/lambda")
    expect(field).to_have_value("/lambda")
    field.fill("lambda")
    expect(opened.drawing.locator(".node.match")).to_have_count(1)
    field.press("Escape")
    expect(field).to_have_value("")
    expect(opened.drawing.locator(".node.match")).to_have_count(0)


def test_n_goes_through_all_boxes_or_all_matches(
    tree: cyclescope.CycleReport, open_page: Open
) -> None:
    opened = open_page(tree.to_html())
    field = opened.page.get_by_placeholder("Find an object")
    chosen = opened.drawing.locator(".node.selected")
    field.press("Enter")
    expect(chosen).to_have_count(0)
    opened.drawing.focus()
    boxes = opened.drawing.locator(".node").count()
    seen = set()
    for _ in range(boxes):
        opened.page.keyboard.press("n")
        seen.add(chosen.get_attribute("id"))
    assert len(seen) == boxes
    opened.page.keyboard.press("Escape")
    opened.show("Everything")
    # By the name of a reference, which only the object has that refers.
    field.fill(".parent")
    matches = opened.drawing.locator(".node.match")
    expect(matches).not_to_have_count(0)
    field.press("Enter")
    expect(chosen).to_have_class(re.compile("match"))
    field.fill("nothing has this name")
    field.press("Escape")
    field.fill("nothing has this name")
    field.press("Enter")
    expect(chosen).to_have_count(0)


def test_question_mark_lists_the_keys(report: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(report.to_html())
    keys = opened.page.get_by_role("dialog", name="Keys")
    expect(keys).to_be_hidden()
    opened.page.keyboard.press("?")
    expect(keys).to_be_visible()
    opened.page.keyboard.press("Escape")
    expect(keys).to_be_hidden()
    opened.button("?").click()
    keys.get_by_role("button", name="Close").click()
    expect(keys).to_be_hidden()


def test_plus_minus_and_nought_zoom(report: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(report.to_html())
    opened.drawing.focus()
    whole = opened.seen()
    opened.page.keyboard.press("+")
    closer = opened.seen()
    opened.page.keyboard.press("-")
    assert opened.seen() not in (None, closer)
    opened.page.keyboard.press("0")
    assert opened.seen() == whole != closer


def test_j_and_k_go_from_leak_to_leak(several: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(several.to_html())
    shown = opened.page.locator("section.leak:visible")
    for key, number in [("j", 2), ("j", 3), ("j", 3), ("k", 2), ("k", 1), ("k", 1)]:
        opened.page.keyboard.press(key)
        expect(shown).to_have_count(1)
        signature = several.leaks[number - 1].signature
        expect(shown).to_have_id(signature)
        # The address is a link to it.
        expect(opened.page).to_have_url(re.compile(f"#{signature}$|html$"))
    opened.page.keyboard.press("j")
    expect(shown).to_have_id(several.leaks[1].signature)
    opened.page.go_back()
    expect(shown).to_have_id(several.leaks[0].signature)


def test_the_list_can_be_skipped(several: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(several.to_html())
    press = opened.page.keyboard.press
    press("j")
    opened.page.reload()
    skip = opened.page.get_by_role("link", name="Skip the list")
    for _ in range(3):
        press("Tab")
        if skip.evaluate("link => link === document.activeElement"):
            break
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    press("Enter")
    shown = opened.page.locator("section.leak:visible")
    expect(shown).to_have_id(several.leaks[1].signature)
    expect(shown.locator("h2").first).to_be_focused()
    press("Tab")
    assert shown.evaluate("section => section.contains(document.activeElement)")


def test_every_control_can_be_reached_and_has_a_name(
    tree: cyclescope.CycleReport, open_page: Open
) -> None:
    opened = open_page(tree.to_html())
    reached = set()
    for _ in range(30):
        opened.page.keyboard.press("Tab")
        name = opened.page.evaluate(
            "(e => e.getAttribute('aria-label') || e.textContent.trim())(document.activeElement)"
        )
        assert name, opened.page.evaluate("document.activeElement.outerHTML.slice(0, 200)")
        reached.add(name)
    wanted = {"The leak", "Everything", "Find an object", "Type of objects", "Zoom in", "Fit"}
    assert wanted <= reached, wanted - reached
    assert any(name.startswith("Drawing of the leak") for name in reached)


def test_what_is_chosen_is_announced(report: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(report.to_html())
    opened.drawing.focus()
    opened.page.keyboard.press("ArrowRight")
    chosen = opened.drawing.locator(".node.selected")
    expect(opened.drawing).to_have_attribute(
        "aria-activedescendant", chosen.get_attribute("id") or "?"
    )
    expect(chosen).to_have_attribute("aria-label", re.compile("AwaitableTensorWithViewCallBack"))
    expect(opened.facts).to_have_attribute("aria-live", "polite")
    ids = opened.page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
