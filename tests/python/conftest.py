"""What runs of the command and of pytest share."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.command_line import Command
from support.processes import python


@pytest.fixture
def few_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of pytest load xdist and what they name. Others, like Playwright, take a second each."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin")


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """Runs the command in a folder of its own."""

    def run(
        *arguments: str, input: str | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return python(
            *["-m", "cyclescope", *arguments],
            cwd=tmp_path,
            input=input,
            env=os.environ | {"TMPDIR": str(tmp_path)} | environment,
            timeout=120,
        )

    return run
