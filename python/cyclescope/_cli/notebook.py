"""The code cells of a Jupyter notebook."""

from __future__ import annotations

import ast
import contextlib
import json
import linecache
from pathlib import Path
from types import CodeType
from typing import Any

FORMAT = 4
"""The version of the notebook format that is read: that of Jupyter since 2015."""


class NotebookError(Exception):
    """The file is no notebook that can be run."""


class Notebook:
    """A notebook whose code cells are compiled, each under the name ``FILE cell NUMBER``."""

    def __init__(self, path: Path, content: bytes) -> None:
        self._path = path
        self._shell: Any = None
        cells = _sources(path, content)
        if any(_is_magic(source) for source in cells.values()):
            self._shell = _shell(path)
        elif any("get_ipython" in source for source in cells.values()):
            with contextlib.suppress(NotebookError):
                self._shell = _shell(path)
        self.codes = [self._compile(number, source) for number, source in cells.items()]

    def _compile(self, number: int, source: str) -> CodeType:
        if self._shell is not None:
            source = self._shell.transform_cell(source)
        name = f"{self._path} cell {number}"
        # Tracebacks show its lines, as they do in Jupyter, and so do reports.
        lines = [f"{line}\n" for line in source.splitlines()]
        linecache.cache[name] = (len(source), None, lines, name)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code: CodeType = compile(source, name, "exec", flags=flags, dont_inherit=True)
        return code

    def prepare(self, namespace: dict[str, Any]) -> None:
        """Give the cells what IPython has by itself: ``display``, and what its commands need."""
        namespace["display"] = _display
        if self._shell is not None:
            self._shell.user_ns = namespace
            namespace["get_ipython"] = lambda: self._shell


def _sources(path: Path, content: bytes) -> dict[int, str]:
    """The source of each code cell that is not empty, by its number among them, from 1."""
    try:
        notebook = json.loads(content)
        if notebook["nbformat"] != FORMAT:
            raise NotebookError(
                f"{path} has notebook format {notebook['nbformat']}, not {FORMAT}; convert it: "
                f"jupyter nbconvert --to notebook --inplace {path}"
            )
        language = _language(notebook)
        if language is not None and language.lower() not in ("python", "ipython"):
            raise NotebookError(f"{path} is a notebook in {language}, not in Python")
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        sources = ["".join(cell["source"]) for cell in cells]
    except ValueError:
        raise NotebookError(f"{path} is not a Jupyter notebook: it is not JSON") from None
    except KeyError as error:
        raise NotebookError(f"{path} is not a Jupyter notebook: it has no {error}") from None
    except (TypeError, AttributeError):
        raise NotebookError(
            f"{path} is not a Jupyter notebook: it is JSON of another kind"
        ) from None
    return {number: source for number, source in enumerate(sources, 1) if source.strip()}


def _language(notebook: dict[str, Any]) -> str | None:
    """The language of the cells; None if the notebook does not say."""
    metadata = notebook.get("metadata", {})
    known = metadata.get("language_info", {}).get("name")
    named = known or metadata.get("kernelspec", {}).get("language")
    return named if isinstance(named, str) else None


def _is_magic(source: str) -> bool:
    """True if a cell is no Python, but has lines such as ``%timeit`` or ``!pip``."""
    try:
        ast.parse(source)
    except SyntaxError:
        return any(line.lstrip()[:1] in ("%", "!", "?") for line in source.splitlines())
    return False


def _display(*objects: object, **arguments: Any) -> object:
    """IPython's ``display``, imported only if the notebook calls it; ``print`` without IPython."""
    try:
        from IPython.display import display
    except ImportError:
        return print(*objects, sep="\n")
    return display(*objects, **arguments)


def _shell(path: Path) -> Any:
    try:
        from IPython.core.interactiveshell import InteractiveShell
    except ImportError:
        raise NotebookError(
            f"{path} has IPython commands (lines with % or !), which need IPython: "
            "pip install ipython"
        ) from None
    return InteractiveShell.instance()
