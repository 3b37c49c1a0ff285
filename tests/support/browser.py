"""Opening a page in Chromium as a file, without a network, and noting its complaints."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, expect

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Opened:
    """A page, and what it complained of and asked for so far."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    @property
    def drawing(self) -> Locator:
        """The drawing of the leak that is shown."""
        return self.page.locator("section.leak:not([hidden]) svg.leak-drawing")

    @property
    def facts(self) -> Locator:
        return self.page.locator("section.leak:not([hidden]) .facts-of-object")

    def button(self, name: str) -> Locator:
        section = self.page.locator("section.leak:not([hidden])")
        return section.get_by_role("button", name=name, exact=True).first

    def show(self, view: str) -> None:
        """Shows another drawing of the leak, and waits until all of it is drawn."""
        self.button(view).click()
        expect(self.button(view)).to_have_attribute("aria-pressed", "true")
        expect(self.drawing).not_to_have_attribute("aria-busy", "true", timeout=30_000)

    def seen(self) -> str:
        """What part of the drawing is seen, as the browser has it."""
        return str(self.drawing.evaluate("element => element.style.transform"))

    def style(self, selector: str, name: str) -> str:
        """A computed property of the first element that matches."""
        first = self.page.locator(selector).first
        return str(first.evaluate("(element, name) => getComputedStyle(element)[name]", name))


Open = Callable[..., Opened]


def chromium() -> str:
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if found is None:
        pytest.fail(
            "The page tests drive Chromium, and none of "
            f"{', '.join(CHROMIUM)} is on the PATH: install it (Debian: apt-get install chromium)."
        )
    return found


def open_file(browser: Browser, file: Path, **options: Any) -> tuple[Opened, BrowserContext]:
    """Opens a file in a context with the given options and no network."""
    context = browser.new_context(offline=True, **options)
    opened = Opened(context.new_page())

    def note(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            opened.complaints.append(message.text)

    opened.page.on("console", note)
    opened.page.on("pageerror", lambda error: opened.complaints.append(str(error)))
    opened.page.on("request", lambda request: opened.requests.append(request.url))
    opened.page.goto(file.as_uri())
    return opened, context


def contrast(one: str, other: str) -> float:
    """How well two colours are told apart, from 1 to 21, by the formula of WCAG 2."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    channels = [int(number) / 255 for number in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
