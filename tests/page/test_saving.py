"""What is copied and saved from the page."""

from __future__ import annotations

import json
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from playwright.sync_api import expect

import cyclescope
from support.browser import Open, Opened

SVG = "{http://www.w3.org/2000/svg}"


def saved(opened: Opened, button: str) -> tuple[str, str]:
    """The name and the text of the file that a click on the button saves."""
    with opened.page.expect_download() as download:
        opened.page.get_by_role("button", name=button).first.click()
    path = Path(download.value.path())
    return download.value.suggested_filename, path.read_text(encoding="utf-8")


def test_copy_trace_and_signature(report: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(report.to_html(), permissions=["clipboard-read", "clipboard-write"])
    opened.page.locator('[data-copy="signature"]').click()
    expect(opened.page.locator('[data-copy="signature"]')).to_have_text("Copied")
    read = "navigator.clipboard.readText()"
    assert opened.page.evaluate(read) == report.leaks[0].signature
    opened.page.locator("details.trace summary").click()
    opened.page.locator('[data-copy="trace"]').click()
    expect(opened.page.locator('[data-copy="trace"]')).to_have_text("Copied")
    copied = opened.page.evaluate(read)
    assert copied.strip() in str(report)
    assert "closure variable 'self'" in copied


def test_a_button_that_copies_stays_as_wide_as_it_is(
    report: cyclescope.CycleReport, open_page: Open
) -> None:
    opened = open_page(report.to_html(), permissions=["clipboard-read", "clipboard-write"])
    buttons = opened.page.locator("[data-copy]:visible")
    widths = "all => all.map((one) => one.getBoundingClientRect().width)"
    before = buttons.evaluate_all(widths)
    for kind in ("trace", "markdown"):
        button = opened.page.locator(f'[data-copy="{kind}"]')
        button.click()
        expect(button).to_have_text("Copied")
    assert buttons.evaluate_all(widths) == before


def test_copy_where_the_clipboard_may_not_be_used(
    report: cyclescope.CycleReport, open_page: Open
) -> None:
    opened = open_page(report.to_html())
    opened.page.evaluate("delete Navigator.prototype.clipboard")
    opened.page.locator('[data-copy="signature"]').click()
    expect(opened.page.locator('[data-copy="signature"]')).to_have_text("Copied")


def test_save_the_drawing(report: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(report.to_html(), accept_downloads=True)
    opened.drawing.locator(".node.held").click()
    opened.page.get_by_title("Zoom in").click()
    name, text = saved(opened, "SVG")
    assert name == f"cyclescope-{report.leaks[0].signature}.svg"
    root = ElementTree.fromstring(text)
    assert "chosen" not in (root.get("class") or "")
    width, height = map(float, (root.get("viewBox") or "").split()[2:])
    assert (width, height) == pytest.approx(
        (float(root.get("width") or 0), float(root.get("height") or 0)), abs=1
    )
    alone = open_page(f"<!doctype html><body>{text}")
    held, other = (f".node{kind} rect" for kind in (".held", ":not(.held)"))
    assert alone.style(held, "fill") != alone.style(other, "fill")
    assert alone.complaints == []


def test_save_the_report(report: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(report.to_html(), accept_downloads=True)
    opened.drawing.locator(".node.held").click()
    name, text = saved(opened, "Save as JSON")
    assert name.endswith(".json")
    assert json.loads(text) == json.loads(report.to_json())
    assert cyclescope.CycleReport.from_json(text).leaks[0].summary == report.leaks[0].summary


def test_save_the_graph(report: cyclescope.CycleReport, open_page: Open) -> None:
    opened = open_page(report.to_html(), accept_downloads=True)
    name, text = saved(opened, "Save as DOT")
    assert name.endswith(".dot")
    assert text == report.to_dot()


def test_graphviz_draws_tensor_cycle_and_cut(
    report: cyclescope.CycleReport, open_page: Open
) -> None:
    program = shutil.which("dot")
    if program is None:
        pytest.fail("The DOT tests ask Graphviz: install it (Debian: apt-get install graphviz).")
    command = [program, "-Tsvg"]
    drawn = subprocess.run(
        command, input=report.to_dot(), capture_output=True, text=True, check=True
    )
    assert drawn.stderr == ""
    root = ElementTree.fromstring(drawn.stdout)
    texts = [text.text or "" for text in root.iter(f"{SVG}text")]
    assert any("✂" in text and "._callback" in text for text in texts), texts
    assert "2.0 MiB" in texts
    dashed = [path for path in root.iter(f"{SVG}path") if path.get("stroke-dasharray")]
    assert len(dashed) == 1
