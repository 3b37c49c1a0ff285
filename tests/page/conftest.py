"""A browser, pages in it, and reports to show."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import FLAGS, Open, Opened, chromium, open_file
from crowded import crowded
from playwright.sync_api import Browser, BrowserContext, sync_playwright

import cyclescope

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "fixtures"))

import common


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Not for the whole session: playwright keeps an event loop running, and no other can run then.
    with sync_playwright() as playwright:
        # Playwright gives each browser a profile folder of its own, and removes it afterwards.
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Opens a text as a file, in a context with the given options and no network."""
    contexts: list[BrowserContext] = []

    def open_page(text: str, **options: Any) -> Opened:
        file = tmp_path / f"page-{len(contexts)}.html"
        file.write_text(text, encoding="utf-8")
        opened, context = open_file(browser, file, **options)
        contexts.append(context)
        return opened

    yield open_page
    for context in contexts:
        context.close()


def leaked(*names: str) -> cyclescope.CycleReport:
    """The report of some fixtures' leaks; the later, the larger."""
    with common.collector_paused():
        for mib, name in enumerate(names, 2):
            common.load(name).leak("cpu", mib)
        return cyclescope.find_tensor_cycles(devices="any")


@pytest.fixture(scope="session")
def report() -> cyclescope.CycleReport:
    return leaked("awaitable_leak")


def surrounded(
    report: cyclescope.CycleReport, types: list[str], edges: list[tuple[int, int, str]]
) -> cyclescope.CycleReport:
    """The leak of a report with objects of these types around it, which are not drawn at first.

    The ends of the edges count the new objects; a negative one is a step of the cycle, -1 the
    first.
    """
    data = json.loads(report.to_json())
    (leak,) = data["leaks"]
    graph = leak["graph"]
    first = len(graph["nodes"])
    steps = [step["node"] for step in leak["cycle"]]
    for kind in types:
        node = {**graph["nodes"][steps[0]], "label": kind, "type_name": kind}
        graph["nodes"].append({**node, "in_cycle": False})
    ends = [*range(first, len(graph["nodes"])), *reversed(steps)]
    for start, end, name in edges:
        edge = {"from": ends[start], "to": ends[end], "name": name, "role": "other"}
        graph["edges"].append(edge)
    return cyclescope.CycleReport.from_json(json.dumps(data))


@pytest.fixture(scope="session")
def tree(report: cyclescope.CycleReport) -> cyclescope.CycleReport:
    """The leak of ``report`` with three objects around it."""
    edges = [(-1, 0, ".child"), (0, 1, ".children"), (1, 2, "[0]"), (2, 0, ".parent")]
    return surrounded(report, ["tree.Node", "dict", "tree.Node"], edges)


@pytest.fixture(scope="session")
def forest(report: cyclescope.CycleReport) -> cyclescope.CycleReport:
    """The leak of ``report`` with two groups of objects around it, a small and a large one."""
    leaves = [(-1, leaf, f".leaf{leaf}") for leaf in range(5)]
    twigs = [(-2, 5, ".twig"), *((5, 5 + twig, f"[{twig}]") for twig in range(1, 100))]
    return surrounded(report, ["tree.Leaf"] * 5 + ["tree.Twig"] * 100, leaves + twigs)


@pytest.fixture(scope="session")
def other() -> cyclescope.CycleReport:
    """Another leak than that of ``report``."""
    return leaked("dict_cycle")


@pytest.fixture(scope="session")
def several() -> cyclescope.CycleReport:
    return leaked("awaitable_leak", "tree_with_parents", "dict_cycle")


@pytest.fixture(scope="session")
def large(report: cyclescope.CycleReport) -> cyclescope.CycleReport:
    """The leak of ``report`` among 2,000 objects."""
    return crowded(report, 2000)
