"""What the renderings of a report cost, for leaks of 10 to 100,000 objects.

Each leak is a tree whose nodes know their parents, so that all of it is one knot of cycles, with an
array at a leaf. The first paint is Chromium's own figure for a page opened from a file: from the
navigation until the first text or drawing is on the screen. The last figure of the page is how long
it takes there from the click on "Everything" until all objects of the report are drawn.
"""

from __future__ import annotations

import gc
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy
from playwright.sync_api import Browser, sync_playwright

import cyclescope
import measure

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.browser import FLAGS, chromium, open_file

SIZES = (10, 200, 2000, 100_000)
REPETITIONS = 7
CHILDREN = 3


class Node:
    """A node of a tree that knows its parent."""

    def __init__(self, parent: Node | None) -> None:
        self.parent = parent
        self.children: list[Node] = []
        self.array: numpy.ndarray | None = None


def make_tree(size: int) -> None:
    nodes = [Node(None)]
    while len(nodes) < size:
        parent = nodes[(len(nodes) - 1) // CHILDREN]
        nodes.append(Node(parent))
        parent.children.append(nodes[-1])
    nodes[-1].array = numpy.zeros(2**18, dtype=numpy.float32)


PAINTED = """() => new Promise(resolve => new PerformanceObserver(list => {
  resolve(list.getEntriesByName("first-contentful-paint")[0].startTime);
}).observe({type: "paint", buffered: true}))"""


UNFOLDED = """() => new Promise(resolve => {
  const start = performance.now();
  const button = document.querySelector("button[data-view=all]");
  if (!button) resolve(0);
  button?.click();
  const whole = () => button.ariaPressed === "true" && !document.querySelector("[aria-busy]");
  const look = () => whole()
    ? requestAnimationFrame(() => resolve(performance.now() - start)) : requestAnimationFrame(look);
  requestAnimationFrame(look);
})"""


def shown(browser: Browser, page: str) -> tuple[float, float]:
    """Nanoseconds until a page of this text is first painted, and until all of it is unfolded.

    Medians of several times.
    """
    painted, unfolded = [], []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "page.html")
        file.write_text(page, encoding="utf-8")
        for _ in range(REPETITIONS):
            opened, context = open_file(browser, file)
            painted.append(float(opened.page.evaluate(PAINTED)) * 1e6)
            unfolded.append(float(opened.page.evaluate(UNFOLDED)) * 1e6)
            context.close()
    return statistics.median(painted), statistics.median(unfolded)


def main() -> None:
    args = measure.arguments(__doc__ or "").parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        rows = measured(browser)
        browser.close()
    head = ["leak", "pause of the program", "page", "first paint", "unfolded"]
    head += ["SVG", "JSON", "DOT", "text"]
    measure.publish("What the renderings cost", measure.table(head, rows), record=args.record)


def measured(browser: Browser) -> list[list[str]]:
    gc.disable()
    cyclescope.find_tensor_cycles(devices="any")
    gc.freeze()

    rows = []
    for size in SIZES:
        pauses = []
        for _ in range(REPETITIONS):
            make_tree(size)
            report = cyclescope.find_tensor_cycles(devices="any")
            pauses.append(report.pause_us * 1000)
        assert len(report.leaks) == 1
        row = [f"{size:,} nodes", measure.duration(statistics.median(pauses))]
        for name in ("to_html", "to_svg", "to_json", "to_dot", "__str__"):
            render = getattr(report, name)
            durations = []
            for _ in range(REPETITIONS):
                start = time.perf_counter_ns()
                text: str = render()
                durations.append(time.perf_counter_ns() - start)
            took = measure.duration(statistics.median(durations))
            row.append(f"{took}, {len(text.encode()) / 1024:,.0f} KiB")
            if name == "to_html":
                row += map(measure.duration, shown(browser, text))
        rows.append(row)
    return rows


if __name__ == "__main__":
    main()
