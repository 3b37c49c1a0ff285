"""The live page of ``cyclescope serve``: reports as they come, and nothing beyond this machine."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

import cyclescope
from cyclescope import _native
from cyclescope._server import Server
from support import gallery


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    context = browser.new_context()
    yield context.new_page()
    context.close()


def write(server: Server, name: str, text: str, time: int) -> None:
    """A file of the folder, with the time of its last change."""
    whole = server.folder / f".{name}.part"
    whole.write_text(text, encoding="utf-8")
    os.utime(whole, (time, time))
    whole.rename(server.folder / name)


def test_reports_are_shown_as_they_come(
    server: Server, page: Page, report: cyclescope.CycleReport, other: cyclescope.CycleReport
) -> None:
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(server.address)
    expect(page.get_by_role("heading", name="No report yet")).to_be_visible()
    write(server, "first.html", report.to_html(), 1000)
    heading = page.frame_locator("iframe").locator("h2").first
    expect(heading).to_contain_text(f"{report.bytes_held >> 20}.0 MiB held by")
    write(server, "second.html", other.to_html(), 2000)
    expect(entries(page)).to_have_count(2)
    signature = page.frame_locator("iframe").locator(".signature span")
    expect(signature).to_have_text(other.leaks[0].signature)
    # What a watch adds to a report that is shown comes too.
    entries(page).filter(has_text="first.html").click()
    expect(signature).to_have_text(report.leaks[0].signature)
    expect(page.get_by_label("Show the newest")).not_to_be_checked()
    write(server, "first.html", report.to_html().replace("</h1>", " and more</h1>"), 3000)
    expect(page.frame_locator("iframe").locator("h1")).to_contain_text("and more")
    assert complaints == []
    assert all(url.startswith(server.address) for url in requests), requests


def test_a_page_in_the_folder_reaches_nothing(server: Server, page: Page) -> None:
    token = server.address
    hostile = f"""<!doctype html><p>before</p><script>
      fetch("{token}list").then(() => {{ document.body.append("reached the list"); }},
        () => {{ document.body.append("blocked"); }});
      try {{ parent.document.title = "taken"; }} catch {{ document.body.append("; no parent"); }}
      new Image().src = "{token}list";
    </script>"""
    write(server, "page.html", hostile, 1000)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(server.address)
    body = page.frame_locator("iframe").locator("body")
    expect(body).to_contain_text("no parent")
    expect(body).to_contain_text("blocked")
    assert page.title() == "Reports · cyclescope"


def entries(page: Page) -> Locator:
    return page.get_by_role("navigation", name="Reports").get_by_role("link")


def test_an_entry_says_what_is_in_the_report(
    server: Server, page: Page, report: cyclescope.CycleReport, several: cyclescope.CycleReport
) -> None:
    write(server, "one.html", report.to_html(), 1000)
    write(server, "several.json", several.to_json(), 2000)
    write(server, "theirs.html", "<p>no title</p>", 500)
    page.goto(server.address)
    expect(entries(page)).to_have_count(3)
    expect(entries(page).nth(0)).to_contain_text("held by 3 leaks")
    expect(entries(page).nth(0)).to_contain_text("several.json")
    (leak,) = report.leaks
    expect(entries(page).nth(1)).to_contain_text(leak.summary)
    expect(entries(page).nth(2)).to_contain_text("theirs.html")


def test_json_of_every_kind_is_shown_and_other_json_is_not(
    server: Server, page: Page, report: cyclescope.CycleReport
) -> None:
    growth = _native.GrowthReport.from_json('{"steps": 20, "samples": 10}')
    kinds = {
        "cycles": report.to_json(),
        "heap": cyclescope.heap().to_json(),
        "why": cyclescope.why_alive([1]).to_json(),
        "diff": cyclescope.heap().diff(cyclescope.heap()).to_json(),
        "growth": growth.to_json(),
        "memory": gallery.device_memory().to_json(),
        "oom": gallery.out_of_memory().to_json(),
    }
    for name, text in kinds.items():
        write(server, f"{name}.json", text, 1000)
    # The newest, but no reports.
    for name, text in (("metrics", '{"loss": [1]}'), ("cut", '{"tool'), ("number", "1")):
        write(server, f"{name}.json", text, 2000)
    page.goto(server.address)
    expect(entries(page)).to_have_count(len(kinds))
    for name in kinds:
        entries(page).filter(has_text=f"{name}.json").click()
        expect(page.locator("iframe")).not_to_have_attribute("title", "Report")
        expect(page.frame_locator("iframe").locator("p.lead")).to_be_visible()


def test_an_update_keeps_the_entries_and_the_history_has_what_was_chosen(
    server: Server, page: Page, report: cyclescope.CycleReport, other: cyclescope.CycleReport
) -> None:
    write(server, "first.html", report.to_html(), 1000)
    write(server, "second.html", other.to_html(), 2000)
    page.goto(server.address)
    first = entries(page).filter(has_text="first.html")
    first.evaluate("link => { link.mine = true; }")
    signature = page.frame_locator("iframe").locator(".signature span")
    expect(signature).to_have_text(other.leaks[0].signature)
    write(server, "third.html", other.to_html(), 3000)
    expect(entries(page)).to_have_count(3)
    expect(page.locator("iframe")).to_have_attribute("title", re.compile("MiB"))
    assert first.evaluate("link => link.mine")
    first.click()
    expect(signature).to_have_text(report.leaks[0].signature)
    page.reload()
    expect(signature).to_have_text(report.leaks[0].signature)
    expect(page.get_by_label("Show the newest")).not_to_be_checked()
    page.go_back()
    expect(signature).to_have_text(other.leaks[0].signature)
    expect(page.get_by_label("Show the newest")).to_be_checked()


def test_new_reports_are_marked_until_they_are_shown(
    server: Server, page: Page, report: cyclescope.CycleReport, other: cyclescope.CycleReport
) -> None:
    write(server, "first.html", report.to_html(), 1000)
    page.goto(server.address)
    entries(page).first.click()
    write(server, "second.html", other.to_html(), 2000)
    expect(entries(page).first).to_contain_text("new")
    expect(page).to_have_title("(1) Reports · cyclescope")
    entries(page).first.click()
    expect(page).to_have_title("Reports · cyclescope")
    expect(entries(page).first).not_to_contain_text("new")


def test_a_report_that_somebody_is_in_is_not_taken_away(
    server: Server, page: Page, report: cyclescope.CycleReport
) -> None:
    write(server, "first.html", report.to_html(), 1000)
    page.goto(server.address)
    heading = page.frame_locator("iframe").locator("h1")
    heading.click()
    write(server, "first.html", report.to_html().replace("</h1>", " and more</h1>"), 3000)
    changed = page.get_by_role("button", name="This report has changed")
    expect(changed).to_be_visible()
    expect(heading).not_to_contain_text("and more")
    changed.click()
    expect(heading).to_contain_text("and more")
    expect(changed).to_be_hidden()


def test_it_says_that_a_report_or_the_server_is_gone(
    server: Server, page: Page, report: cyclescope.CycleReport
) -> None:
    write(server, "first.html", report.to_html(), 1000)
    page.goto(server.address)
    expect(page.get_by_role("status")).to_have_text("1 report")
    (server.folder / "first.html").unlink()
    expect(page.get_by_role("status")).to_contain_text("no longer in the folder")
    page.route("**/list", lambda route: route.abort())
    expect(page.get_by_role("status")).to_contain_text("The server has ended")


@pytest.mark.parametrize("width", [1440, 390])
def test_the_list_fits_and_the_keyboard_reaches_the_report(
    server: Server, page: Page, report: cyclescope.CycleReport, width: int
) -> None:
    for index in range(30):
        write(server, f"{index}-{'n' * 200}.html", report.to_html(), 1000 + index)
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(server.address)
    expect(entries(page)).to_have_count(30)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    frame = page.locator("iframe").bounding_box()
    assert frame is not None
    assert frame["height"] > 400
    assert frame["y"] + frame["height"] <= 800
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("iframe")).to_be_focused()
    # Its sandbox would not open an editor, and the report would be gone.
    expect(page.frame_locator("iframe").get_by_role("link", name="Open")).to_have_count(0)
