"""Several leaks on a page: the list, whose they are, when they were seen."""

from __future__ import annotations

import gc
import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

import common
import cyclescope
from cyclescope import _native
from support import gallery
from support.browser import Open
from support.reports import leaked, repeated


def test_the_list_selects(several: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(several.to_html())
    entries = opened.page.get_by_role("navigation", name="Leaks").get_by_role("link")
    expect(entries).to_have_count(3)
    shown = opened.page.locator("section.leak:visible")
    for index, leak in enumerate(several.leaks):
        expect(entries.nth(index)).to_contain_text(leak.pattern or "")
        expect(entries.nth(index)).to_contain_text(leak.summary.split(" → ")[0])
        entries.nth(index).click()
        expect(shown).to_have_count(1)
        expect(shown).to_contain_text(leak.signature)
        expect(entries.nth(index)).to_have_attribute("aria-current", "true")
        expect(opened.drawing.locator(".node.held").first).to_be_visible()
    opened.page.go_back()
    expect(shown).to_contain_text(several.leaks[1].signature)


def test_the_address_names_the_leak(several: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(several.to_html())
    opened.page.goto(f"{opened.page.url}#leak-3")
    opened.page.reload()
    expect(opened.page.locator("section.leak:visible")).to_contain_text(several.leaks[2].signature)


def test_a_leak_that_the_page_does_not_have_is_said(
    several: cyclescope.CycleReport, open_page: Open
) -> None:
    opened = open_page(several.to_html())
    address, said = opened.page.url, opened.page.locator("#unknown")
    opened.page.goto(f"{address}#0123456789abcdef")
    expect(said).to_have_text("This page has no leak 0123456789abcdef. Another is shown.")
    expect(opened.page.locator("section.leak:visible")).to_have_id(several.leaks[0].signature)
    for known in (several.leaks[1].signature, "leak-3"):
        opened.page.goto(f"{address}#{known}")
        expect(said).to_have_count(0)


def test_whose_a_leak_is_and_what_is_known_of_it(open_page: Open) -> None:
    library, own = (leaked(name) for name in ("traced_graph_module", "awaitable_leak"))
    page = open_page(library.to_html()).page
    expect(page.locator(".marks .library")).to_be_visible()
    known = library.leaks[0].known
    assert known is not None
    # Nothing is said twice: what the fix has already is left out of what is known.
    gist = page.locator(".gist")
    for sentence in known.remedy.replace("`", "").rstrip(".").split(". "):
        expect(gist).to_contain_text(sentence)
        assert gist.inner_text().count(sentence) == 1
    page = open_page(own.to_html()).page
    expect(page.locator(".marks .yours")).to_be_visible()
    expect(page.locator(".marks .library, .marks .known")).to_have_count(0)


def test_the_timeline_of_a_watch(tmp_path: Path, open_page: Open) -> None:
    leak: Any = common.load("awaitable_leak").leak
    with (
        common.collector_paused(),
        cyclescope.warn_tensor_cycles(devices="any", report_dir=tmp_path),
    ):
        for _ in range(5):
            leak("cpu", 1)
            gc.collect()
    (file,) = tmp_path.glob("*.html")
    page = open_page(file.read_text(encoding="utf-8")).page
    chart = page.get_by_role("img", name="5.0 MiB by 5 collections")
    expect(chart).to_be_visible()
    expect(chart.locator("circle")).to_have_count(5)
    # Each collection with its pause.
    expect(chart).to_have_attribute("aria-label", re.compile(r"paused the program for [\d.]+ m?s"))
    pauses = chart.locator(".pauses").get_attribute("d") or ""
    assert pauses.count("M") == 5
    chart.focus()
    page.keyboard.press("ArrowRight")
    said = page.locator(".said")
    expect(said).to_contain_text(re.compile(r"1\.0 MiB of 1 group, paused for [\d.]+ (µs|ms|s)"))
    page.keyboard.press("+")
    assert (chart.locator(".bars").get_attribute("d") or "").count("M") < 5
    page.keyboard.press("Escape")
    assert (chart.locator(".bars").get_attribute("d") or "").count("M") == 5


def test_ranks_have_colours_of_their_own(report: cyclescope.CycleReport, open_page: Open) -> None:
    data = json.loads(report.to_json())
    (leak,) = data["leaks"]
    (once,) = leak["occurrences"]
    leak["occurrences"] = [
        {**once, "time": once["time"] + step, "rank": step % 2} for step in range(8)
    ]
    opened = open_page(cyclescope.CycleReport.from_json(json.dumps(data)).to_html())
    expect(opened.page.locator("header")).to_contain_text("Ranks0, 1")
    expect(opened.page.locator(".key li")).to_have_text(["rank 0", "rank 1"])
    colours = {opened.style(f".timeline .p{rank} circle", "fill") for rank in range(2)}
    assert len(colours) == 2


def test_the_reports_of_several_ranks_make_one_page(
    report: cyclescope.CycleReport, other: cyclescope.CycleReport, open_page: Open
) -> None:
    reports = []
    for rank in range(4):
        data = json.loads((other if rank == 3 else report).to_json())
        for once in data["leaks"][0]["occurrences"]:
            once |= {"rank": rank, "pid": 4000 + rank, "time": once["time"] + rank}
        reports.append(cyclescope.CycleReport.from_json(json.dumps(data)))
    page = open_page(_native.merge(reports).to_html()).page
    expect(page.locator("header .facts")).to_contain_text("Ranks0–3")
    expect(page.locator("section.leak")).to_have_count(2)
    shown = page.locator("section.leak:visible")
    expect(shown.locator(".timeline circle")).to_have_count(3)
    expect(shown.locator(".key li")).to_have_text(["rank 0", "rank 1", "rank 2"])


def test_a_row_of_the_ranks_shows_its_leak(open_page: Open) -> None:
    opened = open_page(gallery.of_ranks(8).to_html(), viewport={"width": 1440, "height": 900})
    row = opened.page.locator("#ranks tbody tr").last
    wanted = str(row.locator("a").get_attribute("href"))
    row.locator("td").last.click()
    expect(opened.page.locator("section.leak:visible")).to_have_id(wanted[1:])


def test_a_page_of_many_ranks_is_printed_with_those_that_hold_most(open_page: Open) -> None:
    opened = open_page(gallery.of_ranks(64).to_html(), viewport={"width": 688, "height": 1000})
    head = opened.page.locator("#ranks thead th")
    note = opened.page.locator("#ranks .on-paper")
    expect(head).to_have_count(66)
    expect(note).to_be_hidden()
    opened.page.emulate_media(media="print")
    shown = opened.page.locator("#ranks thead th:visible")
    expect(shown).to_have_count(8)
    expect(shown.first).to_have_text("Leak")
    # What all ranks hold comes first: a screen may have no room for the last column.
    expect(shown.nth(1)).to_have_text("All")
    # The last rank has all three leaks.
    expect(shown.nth(7)).to_contain_text("63")
    expect(note).to_contain_text("the 6 ranks that hold most memory")
    leak = opened.page.locator("#ranks tbody th").first.bounding_box()
    assert leak is not None
    assert leak["width"] >= 150
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 688


def test_a_leak_that_was_seen_once_has_no_timeline(
    report: cyclescope.CycleReport, open_page: Open
) -> None:
    opened = open_page(report.to_html())
    expect(opened.page.locator(".timeline")).to_have_count(0)


def test_a_report_without_occurrences_is_still_read(
    report: cyclescope.CycleReport,
) -> None:
    data = json.loads(report.to_json())
    for leak in data["leaks"]:
        del leak["occurrences"]
        for edge in leak["graph"]["edges"]:
            edge.pop("through", None)
    old = cyclescope.CycleReport.from_json(json.dumps(data))
    assert old.leaks[0].summary == report.leaks[0].summary
    assert "Plumbing" not in old.to_html()


@pytest.mark.parametrize("count", [1, 60])
def test_of_many_leaks_all_are_listed(
    report: cyclescope.CycleReport, open_page: Open, count: int
) -> None:
    opened = open_page(repeated(report, count).to_html())
    expect(opened.page.locator("section.leak")).to_have_count(count)
    expect(opened.page.locator("nav a")).to_have_count(count if count > 1 else 0)
    assert opened.complaints == []
    # However long the list, the leak is in sight below it; and the list follows the leak.
    first = opened.page.locator("section.leak").first.bounding_box()
    assert first is not None
    assert first["y"] < 720
    for _ in range(count - 1):
        opened.page.keyboard.press("j")
    if count > 1:
        # Both places at one moment, as the page scrolls a little later than the key is pressed.
        opened.page.wait_for_function("""() => {
          const place = it => document.querySelector(it).getBoundingClientRect();
          const [entry, list] = [place("nav li:last-child"), place("nav")];
          return list.top <= entry.top && entry.top < list.bottom;
        }""")
