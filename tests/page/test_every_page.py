"""Is every kind of page accessible, quiet, small, and readable on any screen and without script?"""

from __future__ import annotations

import importlib.resources
import json
import os
import sys
from typing import Any

import pytest
from playwright.sync_api import expect

from support import gallery
from support.browser import Open
from support.processes import python

KINDS = gallery.KINDS

BACKTICKS = """() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const where = node.parentElement.closest("pre, code, script, template, style");
    if (!where && node.textContent.includes("`")) found.push(node.textContent.slice(0, 120));
  }
  return found;
}"""

HEIGHTS = """async () => {
  const frame = () => new Promise(requestAnimationFrame);
  const { documentElement: root } = document;
  for (let still = 0, before = 0; still < 10; before = root.scrollHeight) {
    await frame();
    still = root.scrollHeight === before ? still + 1 : 0;
  }
  const heights = [root.scrollHeight];
  for (let y = 0; y < root.scrollHeight; y += 700) {
    scrollTo(0, y);
    await frame();
    await frame();
    heights.push(root.scrollHeight);
  }
  return heights;
}"""
"""The height of the page as one scrolls down, once it stands still for the new width."""


@pytest.fixture(scope="module")
def pages(request: pytest.FixtureRequest) -> dict[str, str]:
    """Made in a process of their own: some have all that is alive there."""
    tests = (item for item in request.session.items if item.path == request.path)
    wanted = {item.callspec.params["kind"] for item in tests}  # type: ignore[attr-defined]
    program = (
        "import json, sys; from support import gallery;"
        "print(json.dumps(gallery.pages(*sys.argv[1:])))"
    )
    path = os.pathsep.join(filter(None, sys.path))
    done = python(
        "-c", program, *sorted(wanted), env=os.environ | {"PYTHONPATH": path}, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    made: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return made


@pytest.fixture(scope="module")
def axe() -> str:
    """axe-core, which the package ``axe-playwright-python`` brings."""
    script = importlib.resources.files("axe_playwright_python") / "axe.min.js"
    return script.read_text(encoding="utf-8")


@pytest.mark.sampled(10)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_found_by_axe_logged_requested_cut_off_or_moved(
    pages: dict[str, str], axe: str, open_page: Open, kind: str
) -> None:
    opened = open_page(pages[kind], viewport={"width": 1440, "height": 900})
    page = opened.page
    if page.locator("figure .tools").count():
        expect(opened.drawing).to_have_attribute("role", "application")
    assert page.evaluate(BACKTICKS) == []
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 700})
        heights = page.evaluate(HEIGHTS)
        assert len(set(heights)) == 1, heights
    page.evaluate(axe)
    looks: Any = (("light", 1440), ("dark", 390))
    for scheme, width in looks:
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        # What is folded is looked at too.
        page.evaluate("document.querySelectorAll('main details').forEach(it => it.open = true)")
        page.wait_for_timeout(100)
        result: Any = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
        found = [
            f"{violation['id']}: {node['html'][:200]}: {node['failureSummary']}"
            for violation in result["violations"]
            for node in violation["nodes"]
        ]
        assert found == [], "\n".join(found)
    for width in (1440, 1024, 390, 320):
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("new Promise(requestAnimationFrame)")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.complaints == []
    assert opened.requests == [page.url]


@pytest.mark.sampled(10)
@pytest.mark.parametrize("kind", KINDS)
def test_every_page_reads_without_script(pages: dict[str, str], open_page: Open, kind: str) -> None:
    opened = open_page(pages[kind], java_script_enabled=False)
    expect(opened.page.locator("h1")).to_be_visible()
    expect(opened.page.locator("p.lead")).not_to_be_empty()
    expect(opened.page.get_by_role("button")).to_have_count(0)
    expect(opened.page.locator("main")).not_to_be_empty()


LIMITS = {
    "leak": 100_000,
    "objects-10000": 500_000,
    "objects-100000": 500_000,
    **dict.fromkeys(("heap", "diff", "why-alive", "oom", "growth"), 200_000),
}
"""The maximum size of a page in bytes."""


@pytest.mark.sampled(8)
@pytest.mark.parametrize("kind", LIMITS)
def test_pages_are_small(pages: dict[str, str], kind: str) -> None:
    assert len(pages[kind].encode()) < LIMITS[kind]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", ["leak", "leaks-24", "objects-10000", "objects-100000", "ranks"])
def test_cycle_cut_and_memory_are_in_sight_and_legible(
    pages: dict[str, str], open_page: Open, kind: str
) -> None:
    for width in (1440, 1280, 1024, 390):
        opened = open_page(pages[kind], viewport={"width": width, "height": 900})
        expect(opened.drawing).to_have_attribute("role", "application")
        view: Any = opened.page.locator("section.leak:not([hidden]) .view").bounding_box()
        assert view is not None
        for part in (".node.ring", ".label.cut", ".node.held"):
            box: Any = opened.drawing.locator(part).first.bounding_box()
            assert box is not None
            for side, extent in (("x", "width"), ("y", "height")):
                assert box[side] >= view[side] - 1
                assert box[side] + box[extent] <= view[side] + view[extent] + 1
        # The names are set at 12 px, and scaled with the drawing.
        scale = opened.drawing.evaluate(
            "svg => svg.getBoundingClientRect().width / svg.viewBox.baseVal.width"
        )
        assert 12 * scale >= 8, f"{width}: {scale}"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", ["ranks", "leaks-24", "why-alive"])
def test_a_printed_page_cuts_nothing_and_squeezes_nothing(
    pages: dict[str, str], open_page: Open, kind: str
) -> None:
    opened = open_page(pages[kind], viewport={"width": 794, "height": 1123})  # A4
    opened.page.emulate_media(media="print")
    opened.page.wait_for_timeout(300)
    boxes: Any = opened.page.evaluate("""() => {
      const of = (query) => [...document.querySelectorAll(query)]
        .map((each) => each.getBoundingClientRect()).filter((box) => box.width > 0);
      return [of("svg").map((box) => box.right), of("nav span").map((box) => box.width)];
    }""")
    assert max(boxes[0]) <= 794 + 1
    assert min(boxes[1], default=794) > 300
