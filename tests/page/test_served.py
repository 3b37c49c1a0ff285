"""The live page of ``cyclescope serve``: reports as they come, and nothing beyond this machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

import cyclescope
from cyclescope._server import Server


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
    expect(page.get_by_role("status")).to_contain_text("No report yet")
    write(server, "first.html", report.to_html(), 1000)
    heading = page.frame_locator("iframe").locator("h2").first
    expect(heading).to_contain_text(f"{report.bytes_held >> 20}.0 MiB held by")
    write(server, "second.html", other.to_html(), 2000)
    entries = page.get_by_role("navigation", name="Reports").get_by_role("link")
    expect(entries).to_have_count(2)
    signature = page.frame_locator("iframe").locator(".signature span")
    expect(signature).to_have_text(other.leaks[0].signature)
    # What a watch adds to a report that is shown comes too.
    entries.filter(has_text="first.html").click()
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
