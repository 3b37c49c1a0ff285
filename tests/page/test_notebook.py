"""In a notebook, is the leak in sight, and does the page keep its style to itself?"""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

import cyclescope
from support.browser import Open
from support.reports import leaked

LIGHT, DARK = "rgb(246, 247, 249)", "rgb(16, 21, 28)"

STYLES = (
    "[...document.querySelectorAll('body, body *:not(iframe, script)')].map(e => "
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


def test_the_notebook_s_theme_is_followed(report: cyclescope.CycleReport, open_page: Open) -> None:
    page = exported(report._repr_html_())
    assert 'data-jp-theme-light="true"' in page
    dark = page.replace('data-jp-theme-light="true"', 'data-jp-theme-light="false"')
    opened = open_page(dark, color_scheme="light")
    body = opened.page.frame_locator("iframe").locator("body")
    expect(body).to_have_css("background-color", DARK)
    # As soon as it changes, and not once the page's own switch was used.
    set_theme = "light => document.body.dataset.jpThemeLight = light"
    opened.page.evaluate(set_theme, "true")
    expect(body).to_have_css("background-color", LIGHT)
    body.get_by_role("button", name="Theme").click()
    expect(body.get_by_role("button", name="Theme")).to_have_text("Theme: dark")
    opened.page.evaluate(set_theme, "false")
    opened.page.evaluate(set_theme, "true")
    opened.page.wait_for_timeout(100)
    expect(body).to_have_css("background-color", DARK)


@pytest.mark.parametrize(
    ("attributes", "scheme", "ground"),
    [
        ('class="vscode-dark"', "light", "dark"),
        ('class="vscode-light"', "dark", "light"),
        ('class="vscode-high-contrast"', "light", "dark"),
        ('data-vscode-theme-kind="vscode-high-contrast-light"', "dark", "light"),
        ("", "dark", "dark"),
        ("", "light", "light"),
    ],
)
def test_the_theme_of_other_notebooks_or_else_of_the_system(
    report: cyclescope.CycleReport, open_page: Open, attributes: str, scheme: str, ground: str
) -> None:
    page = f"<!doctype html><body {attributes}>{report._repr_html_()}"
    opened = open_page(page, color_scheme=scheme)
    frame = opened.page.frame_locator("iframe")
    expect(frame.locator(".node.held")).to_be_visible()
    colour = DARK if ground == "dark" else LIGHT
    expect(frame.locator("body")).to_have_css("background-color", colour)


def test_the_frame_is_as_high_as_the_page(open_page: Open) -> None:
    clean, leak = leaked(), leaked("awaitable_leak")
    opened = open_page(exported(clean._repr_html_(), leak._repr_html_()))
    for frame, most in zip(opened.page.locator("iframe").all(), (600, 1200), strict=True):
        expect(frame).not_to_have_attribute("height", "680")
        inside = frame.content_frame.locator("html")
        opened.page.wait_for_timeout(300)
        box = frame.bounding_box()
        assert box is not None
        content = inside.evaluate("() => document.body.offsetHeight")
        assert box["height"] <= most
        assert content <= box["height"] < content + 20 or box["height"] == most


def test_without_the_script_beside_it_the_frame_still_shows_the_leak(
    report: cyclescope.CycleReport, open_page: Open
) -> None:
    markup = report._repr_html_()
    alone = markup[: markup.index("</iframe>") + len("</iframe>")]
    opened = open_page(f"<!doctype html><body>{alone}")
    expect(opened.page.frame_locator("iframe").locator(".node.held")).to_be_visible()
    expect(opened.page.locator("iframe")).to_have_attribute("height", "680")
    assert opened.complaints == []


def test_what_a_frame_cannot_do_is_not_offered(
    report: cyclescope.CycleReport, open_page: Open
) -> None:
    frame = open_page(exported(report._repr_html_())).page.frame_locator("iframe")
    expect(frame.get_by_role("button", name="Copy file:line")).to_be_visible()
    # Its sandbox opens no editor, and its address is that of no file.
    expect(frame.get_by_role("link", name="Open")).to_have_count(0)
    expect(frame.get_by_role("button", name="Copy link")).to_have_count(0)
