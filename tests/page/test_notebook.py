"""In a notebook, is the leak in sight, and does the page keep its style to itself?"""

from __future__ import annotations

from playwright.sync_api import expect

import cyclescope
from support.browser import Open

STYLES = (
    "[...document.querySelectorAll('body, body *:not(iframe)')].map(e => "
    "JSON.stringify([e.tagName, ...['color', 'backgroundColor', 'font', 'padding', "
    "'borderTop', 'display'].map(name => getComputedStyle(e)[name])]))"
)


def exported(*outputs: str) -> str:
    """A notebook with these outputs among others, as ``jupyter nbconvert --to html`` writes it."""
    import nbformat.v4 as notebook
    from nbconvert import HTMLExporter

    others = "<table><tr><th>x</th><td>1</td></tr></table>", "<pre class='node'>mine</pre>"
    cells = [notebook.new_markdown_cell("# Mine\n\nSome `code`.\n\n| a |\n|---|\n| 1 |")]
    for html in (others[0], *outputs, others[1]):
        result = notebook.new_output("execute_result", {"text/html": html}, execution_count=1)
        cells.append(notebook.new_code_cell("report", outputs=[result], execution_count=1))
    text, _ = HTMLExporter(template_name="lab").from_notebook_node(
        notebook.new_notebook(cells=cells)
    )
    return str(text)


def test_it_changes_nothing_around_it(report: cyclescope.CycleReport, open_page: Open) -> None:
    alone = open_page(exported("<iframe></iframe>"))
    beside = open_page(exported(report._repr_html_()))
    expect(beside.page.frame_locator("iframe").locator(".node.held")).to_be_visible()
    assert alone.page.evaluate(STYLES) == beside.page.evaluate(STYLES)
    assert beside.complaints == alone.complaints
    # Those that the exported notebook itself makes.
    assert beside.requests[1:] == alone.requests[1:]


def test_the_leak_is_in_sight(report: cyclescope.CycleReport, open_page: Open) -> None:
    page = open_page(exported(report._repr_html_())).page
    frame, held = (
        locator.bounding_box()
        for locator in (
            page.locator("iframe"),
            page.frame_locator("iframe").locator(".node.held"),
        )
    )
    assert frame is not None
    assert held is not None
    assert held["y"] + held["height"] <= frame["y"] + frame["height"]


def test_the_drawing_works_there(report: cyclescope.CycleReport, open_page: Open) -> None:
    beside = open_page(exported(report._repr_html_(), report._repr_html_()))
    frame = beside.page.frame_locator("iframe").last
    frame.locator(".node.held").hover()
    expect(frame.locator(".facts-of-object")).to_contain_text("bytes on cpu")
    frame.get_by_role("button", name="Plumbing").click()
    expect(frame.locator(".label .ref").get_by_text(".cell_contents")).to_be_visible()
    frame.locator('[data-copy="signature"]').click()
    expect(frame.locator('[data-copy="signature"]')).to_have_text("Copied")
    with beside.page.expect_download() as download:
        frame.get_by_role("button", name="SVG").click()
    assert download.value.suggested_filename.endswith(".svg")


def test_the_list_of_leaks_works_there(several: cyclescope.CycleReport, open_page: Open) -> None:
    frame = open_page(exported(several._repr_html_())).page.frame_locator("iframe")
    frame.get_by_role("navigation", name="Leaks").get_by_role("link").nth(1).click()
    shown = frame.locator("section.leak:visible")
    expect(shown).to_have_count(1)
    expect(shown).to_contain_text(several.leaks[1].signature)
    expect(shown.locator(".node.held").first).to_be_visible()
