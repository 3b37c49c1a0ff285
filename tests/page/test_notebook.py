"""In a notebook, does the page keep its style to itself?"""

from __future__ import annotations

from browser import Open
from playwright.sync_api import expect

import cyclescope

AROUND = (
    "<!doctype html><body><h1>Mine</h1><table><td>mine</table><pre class='node'>mine</pre>"
    "<button>mine</button><section class='leak'>mine</section>{}</body>"
)
STYLES = (
    "element => [...document.querySelectorAll('body, body *:not(iframe)')].map(e => "
    "JSON.stringify([e.tagName, ...['color', 'backgroundColor', 'font', 'padding', "
    "'borderTop', 'display'].map(name => getComputedStyle(e)[name])]))"
)


def test_it_changes_nothing_around_it(report: cyclescope.CycleReport, open_page: Open) -> None:
    alone = open_page(AROUND.format(""))
    beside = open_page(AROUND.format(report._repr_html_()))
    assert alone.page.evaluate(STYLES) == beside.page.evaluate(STYLES)
    assert beside.complaints == []


def test_the_drawing_works_there(report: cyclescope.CycleReport, open_page: Open) -> None:
    beside = open_page(AROUND.format(report._repr_html_() * 2))
    frame = beside.page.frame_locator("iframe").last
    frame.locator(".node.held").hover()
    expect(frame.locator(".facts-of-object")).to_contain_text("bytes on cpu")
    frame.locator('[data-copy="signature"]').click()
    expect(frame.locator('[data-copy="signature"]')).to_have_text("Copied")
    with beside.page.expect_download() as download:
        frame.get_by_role("button", name="SVG").click()
    assert download.value.suggested_filename.endswith(".svg")
    assert not [complaint for complaint in beside.complaints if "Clipboard" not in complaint]
