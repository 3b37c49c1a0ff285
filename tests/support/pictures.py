"""Pictures of every kind of page, to look at: ``make gallery``."""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from support import gallery
from support.browser import FLAGS, chromium

WIDTHS = (1440, 1024, 390)


def main(folder: Path) -> None:
    """Write the pages, and a picture of each at every width, light and dark, and as printed."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = gallery.pages(*gallery.KINDS)
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        page = browser.new_context(offline=True).new_page()
        for name in pages:
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 900})
                page.goto((folder / f"{name}.html").absolute().as_uri())
                page.wait_for_timeout(300)
                for scheme in ("light", "dark"):
                    page.emulate_media(color_scheme=scheme)
                    page.screenshot(path=folder / f"{name}-{width}-{scheme}.png", full_page=True)
            page.pdf(path=folder / f"{name}.pdf", format="A4")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
