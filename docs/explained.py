"""Puts the pages of ``cyclescope explain`` into the documentation site."""

from __future__ import annotations

from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from cyclescope import _native

PAGES = [
    (f"explained/{about.lower().replace(' ', '-')}", about, pages)
    for about, pages in _native.explanations()
]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fills the part of the navigation that the generated pages are in."""
    nav: list[Any] = config.nav or []
    for part in nav:
        if isinstance(part, dict) and "Explained" in part:
            part["Explained"] = [
                {about: [f"{folder}/{name}.md" for name, _ in pages]}
                for folder, about, pages in PAGES
            ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds a page for each pattern and verdict."""
    for folder, _, pages in PAGES:
        for name, page in pages:
            text = f"{page.rstrip()}\n\nIn a terminal: `cyclescope explain {name}`.\n"
            files.append(File.generated(config, f"{folder}/{name}.md", content=text))
    return files
