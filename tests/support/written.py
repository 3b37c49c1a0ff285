"""Modules of a program that a test writes."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Modules:
    """Writes modules into a folder, and imports them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._names: list[str] = []

    def load(self, name: str, text: str) -> Any:
        file = self.folder / f"{name}.py"
        file.write_text(text)
        # A file that is newer than the process is not what the process has read.
        os.utime(file, (0, 0))
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        self._names.append(name)
        spec.loader.exec_module(module)
        return module

    def forget(self) -> None:
        for name in set(self._names):
            vars(sys.modules.pop(name)).clear()


@contextmanager
def modules_in(folder: Path) -> Iterator[Modules]:
    """Modules that are gone afterwards."""
    modules = Modules(folder)
    try:
        yield modules
    finally:
        modules.forget()
