"""Libraries that a test installs, and modules that it writes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.written import Modules, modules_in


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Installs a stand-in for a library and imports it."""
    folder = tmp_path / "lib" / "site-packages"
    folder.mkdir(parents=True)
    monkeypatch.syspath_prepend(folder)
    names: list[str] = []

    def write(name: str, text: str) -> Any:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(text)
        (folder / f"{name}-1.0.dist-info").mkdir()
        importlib.invalidate_caches()
        names.append(name)
        return importlib.import_module(name)

    yield write
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def modules(tmp_path: Path) -> Iterator[Modules]:
    """Writes and imports modules of a program."""
    with modules_in(tmp_path) as written:
        yield written
