"""What pytest runs of the tests share."""

from __future__ import annotations

import pytest


@pytest.fixture
def few_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of pytest load xdist and what they name. Others, like Playwright, take a second each."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin")
