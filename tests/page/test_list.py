"""The list of leaks beside the leak, the theme, and lines that open in an editor."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Locator, expect

import cyclescope
from cyclescope._native import human_bytes
from support import gallery
from support.browser import Open, Opened
from support.reports import leaked, repeated

NAMES = (
    "awaitable_leak",
    "tree_with_parents",
    "dict_cycle",
    "self_reference",
    "parent_child",
    "two_nodes",
    "traced_graph_module",
)


@pytest.fixture(scope="module")
def many() -> cyclescope.CycleReport:
    return leaked(*NAMES)


def reload_until(opened: Opened, kept: re.Pattern[str], link: Locator) -> None:
    """Reloads until a link is as it was: the browser may store what a page keeps a little later.

    A page that is left at once may take with it what the browser was to store.
    """
    for _ in range(30):
        opened.page.wait_for_timeout(500)
        opened.page.reload()
        if kept.match(link.get_attribute("href") or ""):
            return
    expect(link).to_have_attribute("href", kept)


def listed(opened: Opened) -> Locator:
    return opened.page.locator("nav li:visible")


@pytest.mark.parametrize("width", [390, 1024])
def test_what_is_chosen_in_a_list_above_the_leak_comes_into_sight(
    width: int, many: cyclescope.CycleReport, open_page: Open
) -> None:
    opened = open_page(many.to_html(), viewport={"width": width, "height": 800})
    link = listed(opened).nth(1).locator("a")
    target = str(link.get_attribute("href"))
    link.click()
    section = opened.page.locator(f"section[id='{target[1:]}']")
    expect(section).to_be_visible()
    opened.page.wait_for_function("scrollY > 0")
    place = section.bounding_box()
    assert place is not None
    assert -1 <= place["y"] <= 100


def test_a_leak_is_found_by_its_signature_and_by_the_line_that_the_page_copies(
    many: cyclescope.CycleReport, open_page: Open
) -> None:
    opened = open_page(many.to_html(), viewport={"width": 1440, "height": 900})
    field = opened.page.get_by_placeholder("Find a leak")
    for leak in many.leaks:
        field.fill(leak.signature)
        expect(listed(opened)).to_have_count(1)
    copied = opened.page.locator("[data-copy=place]").evaluate_all(
        "buttons => buttons.map((button) => button.dataset.place)"
    )
    assert len(copied) >= 3
    for place in copied:
        field.fill(place)
        expect(listed(opened)).not_to_have_count(0)


def test_enter_shows_the_first_leak_that_is_found(
    many: cyclescope.CycleReport, open_page: Open
) -> None:
    opened = open_page(many.to_html(), viewport={"width": 1440, "height": 900})
    field = opened.page.get_by_placeholder("Find a leak")
    field.fill("TREENODE")
    wanted = str(listed(opened).locator("a").get_attribute("href"))
    field.press("Enter")
    expect(opened.page.locator("section.leak:visible")).to_have_id(wanted[1:])


def test_search_and_filters_narrow_the_list(many: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(many.to_html(), viewport={"width": 1440, "height": 900})
    count = len(many.leaks)
    expect(listed(opened)).to_have_count(count)
    opened.page.keyboard.press("f")
    field = opened.page.get_by_placeholder("Find a leak")
    expect(field).to_be_focused()
    field.fill("TREENODE")
    expect(listed(opened)).to_have_count(1)
    expect(opened.page.locator("nav output")).to_have_text(" · 1 listed")
    field.press("Escape")
    expect(listed(opened)).to_have_count(count)
    none = opened.page.get_by_text("No leak matches.")
    expect(none).to_be_hidden()
    field.fill("zzzz")
    expect(none).to_be_visible()
    field.press("Escape")
    expect(none).to_be_hidden()
    library = sum(leak.library is not None for leak in many.leaks)
    assert 0 < library < count
    opened.page.get_by_label("Whose").select_option("library")
    expect(listed(opened)).to_have_count(library)
    opened.page.get_by_label("Whose").select_option("")
    pattern = many.leaks[0].pattern or ""
    opened.page.get_by_label("Pattern").select_option(pattern)
    alike = sum(leak.pattern == pattern for leak in many.leaks)
    expect(listed(opened)).to_have_count(alike)
    assert opened.complaints == []


def test_the_list_is_filtered_by_rank(open_page: Open) -> None:
    report = gallery.of_ranks(4)
    opened = open_page(report.to_html(), viewport={"width": 1440, "height": 900})
    expect(listed(opened)).to_have_count(3)
    ranks = opened.page.get_by_label("Rank", exact=True)
    expect(ranks.locator("option")).to_have_text(
        ["All ranks", *(f"rank {rank}" for rank in range(4))]
    )
    for rank, count in [("0", 1), ("1", 2), ("3", 3), ("", 3)]:
        ranks.select_option(rank)
        expect(listed(opened)).to_have_count(count)


def test_the_list_of_a_rank_tells_what_the_leaks_hold_there(open_page: Open) -> None:
    report = gallery.of_ranks(4)
    opened = open_page(report.to_html(), viewport={"width": 1440, "height": 900})
    before = opened.page.locator("nav ol").inner_text()
    signatures = [str(it.get_attribute("href")) for it in opened.page.locator("nav a").all()[:3]]
    opened.page.locator("nav li:last-child a").click()
    shown = opened.page.locator("section.leak:visible")
    opened.page.get_by_label("Rank", exact=True).select_option(label="rank 0")
    first = report.leaks[0]
    expect(listed(opened)).to_have_count(1)
    expect(listed(opened).locator("a > b")).to_have_text(human_bytes(first.bytes_held // 4))
    expect(listed(opened).locator("i")).to_have_text("" if first.count == 4 else "2 ×")
    assert listed(opened).locator("rect").get_attribute("width") == "64"
    expect(opened.page.locator("nav output")).to_have_text(" · 1 on rank 0")
    # The leak that was shown is not on this rank.
    expect(shown).to_have_id(signatures[0].removeprefix("#"))
    assert opened.page.url.endswith(signatures[0])
    opened.page.get_by_label("Rank", exact=True).select_option(label="rank 1")
    expect(listed(opened)).to_have_count(2)
    opened.page.get_by_label("Rank", exact=True).select_option("")
    assert opened.page.locator("nav ol").inner_text() == before
    assert opened.complaints == []


def test_what_changed_since_an_earlier_report_is_said(open_page: Open) -> None:
    report = gallery.compared()
    opened = open_page(report.to_html(), viewport={"width": 1440, "height": 900})
    said = "1 new, 1 grown, 1 gone, 1 unchanged or smaller"
    expect(opened.page.locator(".lead")).to_contain_text(said)
    expect(opened.page.locator("h1")).to_have_text(re.compile("^1 new, 1 grown, 1 gone: "))
    # What has changed for the worse comes first, and a dot stands between two words only.
    changes = [item.get_attribute("data-change") for item in listed(opened).all()]
    assert sorted(changes[:2], key=str) == ["grown", "new"]
    marks = listed(opened).locator("em").all_text_contents()
    assert not any(mark.strip().startswith("·") for mark in marks), marks
    expect(opened.page.locator("nav .change")).to_have_count(2)
    opened.page.get_by_label("Change").select_option("new")
    expect(listed(opened)).to_have_count(1)
    listed(opened).locator("a").click()
    shown = opened.page.locator("section.leak:visible")
    expect(shown.locator(".marks .change")).to_have_text("new")
    expect(shown).to_contain_text("AwaitableTensorWithViewCallBack")
    opened.page.get_by_label("Change").select_option("grown")
    listed(opened).locator("a").click()
    expect(shown.locator(".marks .change")).to_have_text(re.compile(r"grown, was \d\.0 MiB"))
    gone = opened.page.locator("#gone")
    expect(gone.locator("tbody tr")).to_have_count(1)
    expect(gone).to_contain_text("dict")


def test_the_keys_follow_the_list(many: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(many.to_html(), viewport={"width": 1440, "height": 900})
    opened.page.get_by_label("Order").select_option(label="By file")
    shown = [text for text in listed(opened).locator("small").all_text_contents() if text]
    assert shown == sorted(shown)
    first = listed(opened).first.locator("a").get_attribute("href") or ""
    listed(opened).first.locator("a").click()
    expect(opened.page).to_have_url(re.compile(f"{first}$"))
    second = listed(opened).nth(1).locator("a").get_attribute("href") or ""
    opened.page.locator("h1").click()
    opened.page.keyboard.press("j")
    expect(opened.page).to_have_url(re.compile(f"{second}$"))
    expect(opened.page.locator("section.leak:visible")).to_have_id(second.removeprefix("#"))
    opened.page.go_back()
    expect(opened.page.locator("section.leak:visible")).to_have_id(first.removeprefix("#"))


def test_the_list_stands_beside_the_leak_where_there_is_room(
    report: cyclescope.CycleReport, open_page: Open
) -> None:
    opened = open_page(repeated(report, 30).to_html(), viewport={"width": 1440, "height": 900})
    nav, main = (
        opened.page.locator("nav").bounding_box(),
        opened.page.locator("main").bounding_box(),
    )
    assert nav is not None
    assert main is not None
    assert nav["x"] + nav["width"] <= main["x"]
    assert nav["height"] <= 900
    # Above the leak it has the first few, and says how many more there are.
    opened.page.set_viewport_size({"width": 1000, "height": 900})
    expect(listed(opened)).to_have_count(5)
    more = opened.page.get_by_role("button", name="25 more")
    more.click()
    expect(listed(opened)).to_have_count(30)
    opened.page.get_by_role("button", name="Fewer").click()
    expect(listed(opened)).to_have_count(5)


def test_the_fix_of_the_first_leak_is_on_the_first_screen_of_a_phone(
    many: cyclescope.CycleReport, open_page: Open
) -> None:
    opened = open_page(many.to_html(), viewport={"width": 390, "height": 844})
    fix = opened.page.locator(".fix:visible").first.bounding_box()
    assert fix is not None
    assert fix["y"] + fix["height"] <= 844
    expect(listed(opened)).to_have_count(2)
    search = opened.page.get_by_placeholder("Find a leak")
    expect(search).to_be_hidden()
    opened.page.get_by_role("button", name=f"{len(many.leaks) - 2} more").click()
    expect(listed(opened)).to_have_count(len(many.leaks))
    expect(search).to_be_visible()


def test_a_page_is_light_or_dark_on_request(
    report: cyclescope.CycleReport, open_page: Open
) -> None:
    opened = open_page(report.to_html(), color_scheme="light")
    switch = opened.page.get_by_role("button", name="Theme")
    ground = opened.style("body", "backgroundColor")
    paper = opened.style(".paper", "fill")
    switch.click()
    expect(switch).to_have_text("Theme: light")
    assert opened.style("body", "backgroundColor") == ground
    switch.click()
    expect(switch).to_have_text("Theme: dark")
    assert opened.style("body", "backgroundColor") != ground
    assert opened.style(".paper", "fill") != paper
    # It is kept, and on paper all is light.
    opened.page.reload()
    expect(switch).to_have_text("Theme: dark")
    opened.page.emulate_media(media="print")
    assert opened.style(".paper", "fill") == paper


def test_the_line_opens_in_an_editor(report: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(report.to_html())
    link = opened.page.get_by_role("link", name="Open")
    (cut,) = report.leaks[0].cuts
    assert cut.location is not None
    line = cut.location.rpartition(":")[2]
    expect(link).to_have_attribute("href", re.compile(rf"^vscode://file//.*\.py:{line}$"))
    opened.page.get_by_label("Open in").select_option("PyCharm")
    expect(link).to_have_attribute("href", re.compile(rf"^pycharm://open\?file=/.*&line={line}$"))
    opened.page.on("dialog", lambda dialog: dialog.accept("https://example.org/{file}#L{line}"))
    opened.page.get_by_label("Open in").select_option("Other address")
    expect(link).to_have_attribute("href", re.compile(rf"^https://example\.org//.*#L{line}$"))
    reload_until(opened, re.compile("https://example"), link)


def test_an_address_that_would_run_is_refused(
    report: cyclescope.CycleReport, open_page: Open
) -> None:
    opened = open_page(report.to_html())
    opened.page.on("dialog", lambda dialog: dialog.accept("javascript:alert(1)//{file}"))
    opened.page.get_by_label("Open in").select_option("Other address")
    link = opened.page.get_by_role("link", name="Open")
    expect(link).to_have_attribute("href", re.compile("^vscode:"))
    expect(opened.page.get_by_label("Open in")).to_have_value("VS Code")


def test_ranks_of_a_timeline_are_hidden_by_its_key(
    report: cyclescope.CycleReport, open_page: Open
) -> None:
    data = json.loads(report.to_json())
    (once,) = data["leaks"][0]["occurrences"]
    data["leaks"][0]["occurrences"] = [
        {**once, "time": once["time"] + step, "rank": step % 2} for step in range(8)
    ]
    opened = open_page(cyclescope.CycleReport.from_json(json.dumps(data)).to_html())
    marks = opened.page.locator(".timeline circle:visible")
    expect(marks).to_have_count(8)
    opened.page.get_by_role("button", name="rank 1").click()
    expect(marks).to_have_count(4)
    opened.page.get_by_role("button", name="rank 1").click()
    expect(marks).to_have_count(8)


def test_many_leaks_are_printed_as_a_list_and_the_largest_in_full(open_page: Open) -> None:
    opened = open_page(repeated(leaked("awaitable_leak"), 30).to_html())
    sections, note = opened.page.locator("section.leak"), opened.page.locator("nav .on-paper")
    expect(note).to_be_hidden()
    for selected, printed in ((20, 13), (2, 12)):
        link = opened.page.locator(f"nav li:nth-child({selected}) a")
        link.evaluate("link => link.click()")
        expect(sections.nth(selected - 1)).to_be_visible()
        opened.page.emulate_media(media="print")
        expect(note).to_contain_text("the 12 leaks that hold most memory")
        expect(listed(opened)).to_have_count(30)
        expect(opened.page.locator("section.leak:visible")).to_have_count(printed)
        expect(sections.nth(selected - 1)).to_be_visible()
        opened.page.emulate_media(media="screen")
