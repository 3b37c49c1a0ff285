"""A browser, pages in it, and reports to show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright

import cyclescope
from support.browser import FLAGS, Open, Opened, chromium, open_file
from support.reports import crowded, leaked, surrounded

# On a busy machine the browser takes longer than Playwright's 5 seconds.
expect.set_options(timeout=30_000)


@pytest.fixture(scope="module", autouse=True)
def only_new_objects(small_heap: None) -> None:
    """Makes the reports that are shown from small heaps."""


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


@pytest.fixture(scope="session")
def report() -> cyclescope.CycleReport:
    return leaked("awaitable_leak")


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
