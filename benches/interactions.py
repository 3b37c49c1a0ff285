"""How long what one does on the page keeps it busy: 2,000 objects drawn, or 200 leaks listed.

Chromium's trace tells the longest task of the page's main thread since the click or the key, with
script, style, layout and painting: while it lasts the page answers to nothing. It is told in
processor time, so that what runs beside it does not count. The page itself tells when its first
answer was painted, and when all was there. A frame is 16.7 ms.

Of the longest task each figure is the median of several times, of the others the least. With
`--page` and `--leaks` it measures pages that were written before, by another version for example.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

import cyclescope
import measure

sys.path += [str(Path(__file__).resolve().parent.parent / at) for at in ("tests", "fixtures")]

import common
from support.browser import FLAGS, chromium, open_file
from support.reports import crowded, repeated

REPETITIONS = 5
SETTLED_MS = 300
VIEWPORT: ViewportSize = {"width": 1280, "height": 900}
CATEGORIES = ["toplevel", "devtools.timeline", "blink.user_timing"]

# When an event came, when the frame after it was painted, and when nothing was busy any more.
WATCH = """([event, done]) => {
  performance.mark("begin");
  const painted = new Promise(resolve => {
    const target = event === "theme" ? matchMedia("(prefers-color-scheme: dark)") : window;
    target.addEventListener(event === "theme" ? "change" : event, ({ timeStamp }) => {
      requestAnimationFrame(() => setTimeout(() => resolve([timeStamp, performance.now()])));
    }, { capture: true, once: true });
  });
  window.watched = painted.then(async ([start, first]) => {
    const busy = () => document.querySelector("[aria-busy]") || !document.querySelector(done);
    do await new Promise(requestAnimationFrame); while (busy());
    await new Promise(resolve => setTimeout(resolve));
    return [first - start, performance.now() - start];
  });
}"""
OPENED = """() => {
  performance.mark("opened");
  const [{ startTime }] = performance.getEntriesByName("first-contentful-paint");
  return [startTime, performance.getEntriesByType("navigation")[0].loadEventEnd];
}"""


@dataclass(frozen=True)
class Interaction:
    """What is done, by the event that the browser makes of it, after what was done before."""

    name: str
    event: str
    act: Callable[[Page], None]
    before: Callable[[Page], None] = lambda page: None
    done: str = "body"
    """What is there when all is there."""


def everything(page: Page) -> None:
    button = page.locator('button[data-view="all"]')
    button.click()
    page.locator('button[data-view="all"][aria-pressed="true"]').wait_for()
    page.locator("svg.leak-drawing:not([aria-busy])").wait_for()


def then(*steps: Callable[[Page], None]) -> Callable[[Page], None]:
    def all_steps(page: Page) -> None:
        for step in steps:
            step(page)

    return all_steps


def point(page: Page, selector: str) -> tuple[float, float]:
    box = page.locator(selector).first.bounding_box()
    assert box is not None, selector
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def see(selector: str) -> Callable[[Page], None]:
    def act(page: Page) -> None:
        # Until it is interactive, the drawing is put in its place once more.
        page.locator('svg.leak-drawing[role="application"]').wait_for()
        page.locator(selector).first.scroll_into_view_if_needed()

    return act


def click(selector: str) -> Callable[[Page], None]:
    return lambda page: page.mouse.click(*point(page, selector))


def key(name: str) -> Callable[[Page], None]:
    return lambda page: page.keyboard.press(name)


def hover(selector: str) -> Callable[[Page], None]:
    return lambda page: page.mouse.move(*point(page, selector))


def choose_type(page: Page) -> None:
    page.locator(".tools select").first.select_option(index=2)


def darken(page: Page) -> None:
    page.emulate_media(color_scheme="dark")


def narrow(page: Page) -> None:
    page.set_viewport_size({"width": 900, "height": 800})


SHOW_ALL, SHOW_LEAK = (f'button[data-view="{view}"]' for view in ("all", "leak"))
PRESSED = '[aria-pressed="true"]'
SAVE_JSON, SAVE_DOT = (f'[data-save="{kind}"]' for kind in ("json", "dot"))
INTERACTIONS = [
    Interaction("Everything", "click", click(SHOW_ALL), done=SHOW_ALL + PRESSED),
    Interaction(
        "Everything, once more",
        "click",
        click(SHOW_ALL),
        then(everything, click(SHOW_LEAK)),
        done=SHOW_ALL + PRESSED,
    ),
    Interaction(
        "+ 1,996 more",
        "keydown",
        key("Enter"),
        then(see(".node.more"), click(".node.more")),
        done=".opened",
    ),
    Interaction("hover", "pointerover", hover(".node.ring"), everything),
    Interaction("choose", "click", click(".node.ring"), everything),
    Interaction("arrow key", "keydown", key("ArrowRight"), then(everything, click(".node.ring"))),
    Interaction("zoom", "click", click('[data-zoom="in"]'), everything),
    Interaction("fit", "click", click('[data-zoom="fit"]'), everything),
    Interaction("search, first key", "input", key("n"), then(everything, key("/"))),
    Interaction("filter by type", "change", choose_type, everything),
    Interaction("dark for light", "theme", darken, everything),
    Interaction("narrower window", "resize", narrow, everything),
    Interaction("save as SVG", "click", click('[data-save="svg"]'), everything),
    Interaction("save as JSON", "click", click(SAVE_JSON), see(SAVE_JSON)),
    Interaction("save as DOT", "click", click(SAVE_DOT), see(SAVE_DOT)),
    Interaction(
        "all objects, as a table",
        "click",
        click("details.raw summary"),
        see("details.raw"),
        done="details.raw tbody",
    ),
    Interaction("the trace", "click", click("details.trace summary"), see("details.trace")),
]
OF_LEAKS = [
    Interaction("the next of 200 leaks", "keydown", key("j")),
    Interaction("a leak of the list", "click", click("nav li:nth-child(9) a")),
]


def main() -> None:
    parser = measure.arguments(__doc__ or "")
    parser.add_argument("--page", type=Path, help="a page whose leak has many objects")
    parser.add_argument("--leaks", type=Path, help="a page of many leaks")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        written = write_pages(Path(folder))
        one, many = (args.page or written[0]).resolve(), (args.leaks or written[1]).resolve()
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        rows = [row("open a page of 2,000 objects", partial(opened, browser, one))]
        rows += [row(what.name, partial(measured, browser, one, what)) for what in INTERACTIONS]
        rows += [row("open a page of 200 leaks", partial(opened, browser, many))]
        rows += [row(what.name, partial(measured, browser, many, what)) for what in OF_LEAKS]
        browser.close()
    head = ["interaction", "longest task", "first answer", "all is there"]
    title = f"What keeps the page busy, {REPETITIONS} times each"
    measure.publish(title, measure.table(head, rows), record=args.record)


def write_pages(folder: Path) -> list[Path]:
    with common.collector_paused():
        common.load("awaitable_leak").leak("cpu", 2)
        report = cyclescope.find_tensor_cycles(devices="any")
    files = [folder / "objects.html", folder / "leaks.html"]
    for file, shown in zip(files, [crowded(report, 2000), repeated(report, 200)], strict=True):
        file.write_text(shown.to_html(), encoding="utf-8")
    return files


def row(name: str, measure_once: Callable[[], tuple[float, float, float]]) -> list[str]:
    longest, first, whole = zip(*(measure_once() for _ in range(REPETITIONS)), strict=True)
    return [name, *map(measure.duration, (statistics.median(longest), min(first), min(whole)))]


def measured(browser: Browser, file: Path, what: Interaction) -> tuple[float, float, float]:
    """Nanoseconds of the longest task, until the first answer, and until all is there."""
    opened, context = open_file(browser, file, viewport=VIEWPORT)
    page = opened.page
    what.before(page)
    page.wait_for_timeout(SETTLED_MS)
    browser.start_tracing(page=page, categories=CATEGORIES)
    page.evaluate(WATCH, [what.event, what.done])
    what.act(page)
    first, whole = page.evaluate("watched")
    page.wait_for_timeout(SETTLED_MS)
    longest = longest_task(browser.stop_tracing())
    context.close()
    return longest, first * 1e6, whole * 1e6


def opened(browser: Browser, file: Path) -> tuple[float, float, float]:
    """The same of opening the page."""
    context = browser.new_context(offline=True, viewport=VIEWPORT)
    page = context.new_page()
    browser.start_tracing(page=page, categories=CATEGORIES)
    page.goto(file.as_uri())
    page.wait_for_timeout(SETTLED_MS)
    first, whole = page.evaluate(OPENED)
    longest = longest_task(browser.stop_tracing())
    context.close()
    return longest, first * 1e6, whole * 1e6


def longest_task(trace: bytes) -> float:
    """Nanoseconds of processor time of the longest thing that the thread of a mark did since."""
    events = json.loads(trace)["traceEvents"]
    marks = {event["name"]: event for event in events if event.get("cat") == "blink.user_timing"}
    begin = marks.get("begin")
    mark = begin or marks["opened"]
    # Tasks have several names in a trace; what is within a task is no longer than it.
    times = [
        event["tdur"]
        for event in events
        if (event.get("pid"), event.get("tid")) == (mark["pid"], mark["tid"])
        and "tdur" in event
        and (begin is None or event["ts"] >= begin["ts"])
    ]
    return float(max(times)) * 1e3


if __name__ == "__main__":
    main()
