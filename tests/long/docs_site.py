"""The documentation site in a browser: each page opens, without a complaint or a dead link.

``make test-docs`` builds it and runs this.
"""

from __future__ import annotations

import functools
import http.server
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urldefrag

import pytest
from playwright.sync_api import Browser, sync_playwright

from cyclescope import _native
from support.browser import CHROMIUM, FLAGS

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "site"
PAGES = sorted(file.relative_to(SITE).as_posix() for file in SITE.rglob("*.html"))
EXPLAINED = [
    f"explained/{about.lower().replace(' ', '-')}/{name}.html"
    for about, pages in _native.explanations()
    for name, _ in pages
]
WITH_EXAMPLE = [page for page in EXPLAINED if not page.startswith("explained/out-of-memory/")]


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves the site, and logs nothing."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=SITE)
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = next(filter(None, map(shutil.which, CHROMIUM)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


def test_there_is_a_page_for_each_pattern_and_verdict() -> None:
    assert set(EXPLAINED) <= set(PAGES)
    assert {"index.html", "fix-a-trainer.html", "api.html"} <= set(PAGES)


def test_every_page_opens_without_a_complaint_or_a_dead_link(
    browser: Browser, address: str
) -> None:
    page = browser.new_page()
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda it: complaints.append(it.text) if it.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    for name in PAGES:
        if name == "404.html":
            continue
        page.goto(f"{address}/{name}")
        assert page.locator("h1").count() == 1, name
        assert complaints == [], name
        links = page.locator("article a").evaluate_all("all => all.map(it => it.href)")
        for link in links:
            target, anchor = urldefrag(link)
            if not target.startswith(address):
                continue
            file = SITE / target.removeprefix(f"{address}/")
            assert file.is_file(), (name, link)
            if anchor and file.suffix == ".html":
                assert f'id="{anchor}"' in file.read_text("utf-8"), (name, link)
    assert [url for url in requests if not url.startswith(address)] == []
    page.close()


@pytest.mark.parametrize("name", WITH_EXAMPLE)
def test_a_page_shows_its_example_and_what_is_said_of_it(name: str) -> None:
    text = (SITE / name).read_text("utf-8")
    assert 'id="example"' in text
    example = text.partition('id="example"')[2].partition("In a terminal:")[0]
    assert Path(name).stem in example
