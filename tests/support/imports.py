"""Which test files make the heap of a worker large, as they import a large framework."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
FOLDERS = (TESTS, TESTS / "harmless", TESTS.parent / "fixtures", TESTS.parent / "fixtures" / "live")
LARGE = {"accelerate", "jax", "lightning", "torch", "transformers"}
LARGE_OF_OURS = {"cyclescope.integrations.torch_debug"}


@functools.cache
def is_large(file: Path) -> bool:
    """True if a file imports a large framework anywhere in it, or a file of ours that does.

    pytest imports the ``conftest.py`` beside a test file with it.
    """
    fixtures = file.with_name("conftest.py")
    if file.parent != TESTS and file != fixtures and fixtures.exists() and is_large(fixtures):
        return True
    for name in _imported(ast.parse(file.read_text("utf-8"))):
        if name.partition(".")[0] in LARGE or name in LARGE_OF_OURS:
            return True
        ours = _file_of(name)
        if ours is not None and ours != file and is_large(ours):
            return True
    return False


def _imported(module: ast.Module) -> Iterator[str]:
    """The names of all modules that a module may import."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.args[0] if node.args else None
            if node.func.attr in ("importorskip", "import_module") and isinstance(
                name, ast.Constant
            ):
                yield str(name.value)


def _file_of(name: str) -> Path | None:
    parts = name.split(".")
    for folder in FOLDERS:
        module = folder.joinpath(*parts)
        for file in (module.with_suffix(".py"), module / "__init__.py"):
            if file.exists():
                return file
    return None
