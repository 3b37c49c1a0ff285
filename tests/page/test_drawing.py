"""Does the drawing answer to the pointer: facts, choice, search, filter, zoom, depths?"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

import cyclescope
from support.browser import Open, Opened
from support.reports import crowded, leaked, tangled

FIXTURES = (
    "awaitable_leak",
    "autograd_context",
    "class_made_at_run_time",
    "doubly_linked_list",
    "exception_in_local",
    "future_keeps_exception",
    "lru_cache_on_instance",
    "module_hook_captures_module",
    "ring_of_stages",
    "tree_with_parents",
)


@pytest.mark.parametrize("name", FIXTURES)
def test_no_name_lies_over_a_box_or_another_name(name: str, open_page: Open) -> None:
    opened = open_page(leaked(name).to_html())
    for view in ("The leak", "Plumbing", "Everything"):
        if opened.button(view).count():
            opened.show(view)
        boxes = rectangles(opened, ".node rect")
        names = rectangles(opened, ".label rect")
        assert boxes
        assert names
        for index, label in enumerate(names):
            for other in boxes + names[:index]:
                assert not overlap(label, other), f"{view}: {label} and {other}"


def test_a_drawing_that_was_whole_is_whole_in_a_narrower_window(
    report: cyclescope.CycleReport, open_page: Open
) -> None:
    page = crowded(report, 200).to_html()
    opened = open_page(page, viewport={"width": 1440, "height": 900})
    opened.show("Everything")
    view = opened.page.locator("section.leak:not([hidden]) .view")
    scale = opened.drawing.evaluate("svg => svg.getBoundingClientRect().width")

    def is_whole() -> bool:
        drawn, room = opened.drawing.bounding_box(), view.bounding_box()
        assert drawn is not None
        assert room is not None
        return (
            drawn["x"] >= room["x"] - 1
            and drawn["x"] + drawn["width"] <= room["x"] + room["width"] + 1
        )

    assert is_whole()
    opened.page.set_viewport_size({"width": 640, "height": 900})
    opened.page.wait_for_timeout(300)
    assert is_whole()
    # What was moved or enlarged stays.
    opened.page.set_viewport_size({"width": 1440, "height": 900})
    opened.page.wait_for_timeout(300)
    now = opened.drawing.evaluate("svg => svg.getBoundingClientRect().width")
    assert now == pytest.approx(scale, abs=1)
    opened.page.get_by_role("button", name="Zoom in").click()
    scale = opened.drawing.evaluate("svg => svg.getBoundingClientRect().width")
    opened.page.set_viewport_size({"width": 640, "height": 900})
    opened.page.wait_for_timeout(300)
    now = opened.drawing.evaluate("svg => svg.getBoundingClientRect().width")
    assert now == pytest.approx(scale, abs=1)


@pytest.mark.parametrize("objects", [49, 200, 2000, -1000])
def test_many_objects_are_a_few_boxes_that_never_overlap(
    report: cyclescope.CycleReport, open_page: Open, objects: int
) -> None:
    many = tangled(report, -objects) if objects < 0 else crowded(report, objects)
    opened = open_page(many.to_html())
    opened.show("Everything")
    check_apart(opened)
    clusters = opened.drawing.locator(".node.cluster")
    count = clusters.count()
    assert 1 <= count <= 16
    for index in range(count):
        opened.show("Everything")
        opened.button("Fit").click()
        clusters.nth(index).click()
        opened.page.keyboard.press("Enter")
        expect(opened.drawing.locator(".node.opened").first).to_be_visible()
        expect(opened.button("Everything")).to_have_attribute("aria-pressed", "true")
        check_apart(opened)
        opened.page.keyboard.press("Escape")
        expect(clusters).to_have_count(count)
    assert opened.complaints == []


def check_apart(opened: Opened) -> None:
    """No box and no name lies over another, there are few of them, and the memory is there."""
    all_of_them = rectangles(opened, ".node rect") + rectangles(opened, ".label rect")
    assert 5 < len(all_of_them) < 200
    for index, one in enumerate(all_of_them):
        for other in all_of_them[:index]:
            assert not overlap(one, other), f"{one} and {other}"
    expect(opened.drawing.locator(".node.held").first).to_be_attached()
    expect(opened.drawing.locator(".node.ring").first).to_be_attached()


def test_every_object_is_found_wherever_it_is(
    report: cyclescope.CycleReport, open_page: Open
) -> None:
    many = crowded(report, 1000)
    opened = open_page(many.to_html())
    field = opened.page.get_by_placeholder("Find an object")
    for view in ("The leak", "Everything"):
        opened.show(view)
        for name in ("Node 5", "Node 333", "Node 999"):
            field.fill(name)
            expect(opened.drawing.locator(".node.match")).not_to_have_count(0)
        field.fill("Node 1000")
        expect(opened.drawing.locator(".node.match")).to_have_count(0)


def test_an_object_within_a_cluster_is_told_and_its_box_chosen(
    report: cyclescope.CycleReport, open_page: Open
) -> None:
    opened = open_page(crowded(report, 1000).to_html())
    opened.show("Everything")
    opened.button("Fit").click()
    opened.drawing.locator(".node.cluster").last.click()
    opened.facts.get_by_role("button", name="Draw 20 of these").click()
    # From a drawn object to what it refers to, which has no box of its own anywhere.
    opened.button("Fit").click()
    opened.drawing.locator(".node.opened[data-node]").last.click()
    opened.facts.get_by_role("button", name="Node").last.click()
    expect(opened.facts.locator("h3")).to_contain_text("Node")
    expect(opened.drawing.locator(".node.selected")).to_have_count(1)
    assert opened.complaints == []


def test_no_box_is_inert(open_page: Open) -> None:
    opened = open_page(leaked("lru_cache_on_instance").to_html())
    for view in ("The leak", "Plumbing"):
        opened.show(view)
        for box in opened.drawing.locator(".node").all():
            box.click()
            expect(box).to_have_class(re.compile(r"\bselected\b"))
            expect(opened.facts.locator("h3")).not_to_be_empty()
            opened.page.keyboard.press("Escape")


THROUGH_BOXES = """svg => {
  const { edges } = report().leaks[0].graph;
  const boxes = [...svg.querySelectorAll(".node[data-node]")].map(node => {
    const { x, y, width, height } = node.querySelector("rect").getBBox();
    return { number: Number(node.dataset.node), x, y, right: x + width, bottom: y + height };
  });
  return [...svg.querySelectorAll(".edge[data-edge]")].flatMap(line => {
    const { from, to, name } = edges[line.dataset.edge];
    const path = line.querySelector(".line");
    const part = path.getTotalLength() / 60;
    const points = Array.from({ length: 60 }, (_, i) => path.getPointAtLength(part * i));
    const others = boxes.filter(box => box.number !== from && box.number !== to);
    return others.filter(box => points.some(({ x, y }) =>
      x > box.x && x < box.right && y > box.y && y < box.bottom)).map(() => name);
  });
}"""


@pytest.mark.parametrize("name", FIXTURES)
def test_no_line_runs_through_a_box(name: str, open_page: Open) -> None:
    opened = open_page(leaked(name).to_html())
    assert opened.drawing.locator(".edge[data-edge]").count() > 1
    assert opened.drawing.evaluate(THROUGH_BOXES) == []


def rectangles(opened: Opened, selector: str) -> list[list[float]]:
    measure = (
        "all => all.map(e => ['x', 'y', 'width', 'height'].map(name => e[name].baseVal.value))"
    )
    found: list[list[float]] = opened.drawing.locator(selector).evaluate_all(measure)
    return found


def overlap(one: list[float], other: list[float]) -> bool:
    return all(
        min(one[i] + one[i + 2], other[i] + other[i + 2]) - max(one[i], other[i]) > 1
        for i in range(2)
    )


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
    expect(opened.facts).to_contain_text("Point at an object")


def test_a_long_name_is_whole_on_hover(open_page: Open) -> None:
    with_long = leaked("awaitable_leak").to_json().replace('AwaitableTensor"', "A" * 200 + 'end"')
    opened = open_page(cyclescope.CycleReport.from_json(with_long).to_html())
    box = opened.drawing.locator(".node", has_text="…").first
    expect(box.locator("title")).to_contain_text("A" * 200 + "end")
    assert "A" * 200 not in (box.locator("text").first.text_content() or "")
    box.hover()
    expect(opened.facts.locator("h3")).to_contain_text("A" * 200 + "end")


def test_click_selects_an_object_and_its_neighbours(
    report: cyclescope.CycleReport, open_page: Open
) -> None:
    opened = open_page(report.to_html())
    function = opened.drawing.locator(".node.function")
    function.click()
    expect(opened.drawing).to_have_class(re.compile(r"\bchosen\b"))
    expect(function).to_have_class(re.compile(r"\bselected\b"))
    expect(opened.drawing.locator(".node.near")).to_have_count(2)
    assert opened.style(".node.held", "opacity") != opened.style(".node.near", "opacity")
    # From the facts, a click on a neighbour's name goes there.
    opened.facts.get_by_role("button").first.click()
    expect(function).not_to_have_class(re.compile(r"\bselected\b"))
    expect(opened.drawing.locator(".node.selected")).to_have_count(1)
    opened.page.keyboard.press("Escape")
    expect(opened.drawing).not_to_have_class(re.compile(r"\bchosen\b"))


def test_search_finds_an_object(report: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(report.to_html())
    field = opened.page.get_by_placeholder("Find an object")
    field.fill("LAMBDA")
    match = opened.drawing.locator(".node.match")
    expect(match).to_have_count(1)
    expect(match).to_have_class(re.compile(r"\bfunction\b"))
    expect(opened.page.locator(".tools output")).to_have_text("1 of 4 boxes")
    field.press("Enter")
    expect(match).to_have_class(re.compile(r"\bselected\b"))
    field.press("Escape")
    field.fill("no such thing")
    expect(opened.page.locator(".tools output")).to_have_text("no match")
    expect(opened.drawing.locator(".dim")).to_have_count(0)


def test_filter_by_type(tree: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(tree.to_html())
    opened.show("Everything")
    opened.page.get_by_label("Type of objects").select_option(label="tree.Node (2)")
    expect(opened.drawing.locator(".node.match")).to_have_count(2)
    opened.page.get_by_label("Type of objects").select_option(label="All types")
    expect(opened.drawing.locator(".node.match")).to_have_count(0)


def test_zoom_and_move(report: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(report.to_html())
    whole = opened.seen()
    opened.page.get_by_title("Zoom in").click()
    closer = opened.seen()
    assert closer != whole
    box = opened.page.locator(".view").bounding_box()
    assert box is not None
    opened.page.mouse.move(box["x"] + 20, box["y"] + 20)
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + 80, box["y"] + 60, steps=3)
    opened.page.mouse.up()
    assert opened.seen() not in (whole, closer)
    opened.button("Fit").click()
    assert opened.seen() == whole


def test_control_and_wheel_zoom_and_the_wheel_alone_scrolls(
    report: cyclescope.CycleReport, open_page: Open
) -> None:
    opened = open_page(report.to_html(), viewport={"width": 1200, "height": 500})
    opened.drawing.locator(".node.held").hover()
    whole = opened.seen()
    before = opened.page.evaluate("scrollY")
    opened.page.mouse.wheel(0, 120)
    until(opened, lambda: opened.page.evaluate("scrollY") > before)
    assert opened.seen() == whole
    opened.drawing.locator(".node.held").hover()
    opened.page.keyboard.down("Control")
    opened.page.mouse.wheel(0, -120)
    until(opened, lambda: opened.seen() != whole)
    opened.page.keyboard.up("Control")


def until(opened: Opened, holds: Callable[[], bool]) -> None:
    """Waits for it as playwright would, whose own way is to ``eval``, which the page forbids."""
    for _ in range(250):
        if holds():
            return
        opened.page.wait_for_timeout(20)
    raise AssertionError("it does not come to hold")


def test_plumbing_unfolds_and_folds(report: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(report.to_html())
    names = opened.drawing.locator(".label .ref")
    expect(names.get_by_text(".__closure__")).to_have_count(0)
    opened.show("Plumbing")
    expect(names.get_by_text(".__closure__")).to_be_visible()
    expect(names.get_by_text(".cell_contents")).to_be_visible()
    expect(opened.drawing.locator(".node", has_text="cell")).to_be_visible()
    expect(opened.button("Plumbing")).to_have_attribute("aria-pressed", "true")
    expect(opened.drawing.locator(".node.held")).to_have_count(1)
    opened.show("The leak")
    expect(names.get_by_text(".__closure__")).to_have_count(0)


def test_what_is_folded_unfolds(tree: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(tree.to_html())
    fold = opened.drawing.locator(".node.more")
    expect(fold).to_contain_text("+ 3 more objects")
    expect(opened.drawing.locator(".node[data-node]")).to_have_count(4)
    fold.click()
    expect(opened.facts.get_by_role("listitem")).to_have_count(3)
    opened.facts.get_by_role("button", name="Draw these").click()
    expect(opened.drawing.locator(".node[data-node]")).to_have_count(7)
    expect(opened.drawing.locator(".node.more")).to_have_count(0)
    expect(opened.drawing.locator(".node.opened")).to_have_count(3)
    opened.show("The leak")
    opened.drawing.locator(".node.more").click()
    opened.facts.get_by_role("listitem").first.get_by_role("button").click()
    expect(opened.drawing.locator(".node[data-node].selected")).to_have_count(1)


def test_each_fold_opens_by_itself(forest: cyclescope.CycleReport, open_page: Open) -> None:
    # All of the figure is in sight: in a page that scrolls the pointer is over another box.
    opened = open_page(forest.to_html(), viewport={"width": 1280, "height": 1200})
    folds, objects = (
        opened.drawing.locator(kind) for kind in (".node.more .name", ".node[data-node]")
    )
    expect(folds).to_have_text(["+ 100 more Twig", "+ 5 more Leaf"])
    before = objects.count()
    folds.get_by_text("Leaf").click()
    opened.facts.get_by_role("button", name="Draw these").click()
    expect(objects).to_have_count(before + 5)
    expect(folds).to_have_text(["+ 100 more Twig"])
    # The other one from there: by keyboard, and only so many of its objects.
    folds.get_by_text("Twig").click()
    opened.page.keyboard.press("Enter")
    expect(objects.locator(".name").get_by_text("Twig")).to_have_count(20)
    expect(folds).to_have_text(["+ 80 more Twig", "+ 5 more Leaf"])
    view = opened.page.locator(".view").bounding_box()
    first = opened.drawing.locator(".node.opened").first.bounding_box()
    assert view is not None
    assert first is not None
    assert view["x"] <= first["x"] <= view["x"] + view["width"] - first["width"]
    # Once for the chosen object, once for the fold.
    objects.first.click()
    opened.page.keyboard.press("Escape")
    expect(folds).to_have_text(["+ 80 more Twig", "+ 5 more Leaf"])
    opened.page.keyboard.press("Escape")
    expect(objects).to_have_count(before)
    expect(opened.button("The leak")).to_have_attribute("aria-pressed", "true")
    assert opened.complaints == []


def test_the_list_of_a_fold_leads_into_it(forest: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(forest.to_html())
    opened.drawing.locator(".node.more", has_text="Twig").click()
    opened.facts.get_by_role("listitem").nth(3).get_by_role("button").click()
    expect(opened.drawing.locator(".node.selected")).to_contain_text("Twig")
    expect(opened.drawing.locator(".node.more .name")).to_have_text(
        ["+ 80 more Twig", "+ 5 more Leaf"]
    )


def test_the_raw_graph_comes_on_request(tree: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(tree.to_html())
    raw = opened.page.locator("details.raw")
    expect(raw.locator("tr")).to_have_count(0)
    raw.locator("summary").click()
    expect(raw.locator("tbody tr")).to_have_count(7)
    expect(raw).to_contain_text(".parent → ")


def test_the_image_stands_alone(report: cyclescope.CycleReport, open_page: Open) -> None:
    image = report.leaks[0].to_svg()
    root = ElementTree.fromstring(image)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    opened = open_page(f"<!doctype html><body>{image}")
    held, other = (f".node{kind} rect" for kind in (".held", ":not(.held)"))
    assert opened.style(held, "fill") != opened.style(other, "fill")
    assert opened.complaints == []
