"""Puts the pages of ``cyclescope explain`` into the documentation site, each with its example.

An example is a program of the tests that leaks so, and what is said of it, which a test compares:
``tests/render/test_traces.py``, ``tests/render/test_growth_examples.py`` and, on a GPU,
``tests/gpu/test_gpu_verdicts.py``.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from cyclescope import _native

ROOT = Path(__file__).resolve().parent.parent
TRACES = ROOT / "tests" / "render" / "traces"
GROWTH = ROOT / "tests" / "render" / "growth"
VERDICTS = ROOT / "tests" / "gpu" / "verdicts"
SOURCE = "https://github.com/cyclescope/cyclescope/blob/main"
NOT_SHOWN = ("look_alike",)
"""Functions that the tests need, and the page does not."""

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
            text = (
                f"{page.rstrip()}\n\n{example(name)}In a terminal: `cyclescope explain {name}`.\n"
            )
            files.append(File.generated(config, f"{folder}/{name}.md", content=text))
    return files


def example(name: str) -> str:
    """The program of a page and what is said of it; empty if nothing was recorded."""
    growing = json.loads((GROWTH / "programs.json").read_text("utf-8"))
    if name in growing:
        file, _, function = growing[name].partition(":")
        said = GROWTH / f"{name}.txt"
        return section(file, function, "`cyclescope.watch_growth()` logs:", said)
    said = VERDICTS / f"{name}.txt"
    if said.exists():
        file = f"fixtures/oom/{name.replace('-', '_')}.py"
        how = "On a GPU, `cyclescope run --oom --growth` writes a post-mortem, which begins with:"
        return section(file, "", how, said)
    trace = trace_of(name)
    if trace is None:
        return ""
    file = f"fixtures/{trace.stem}.py"
    return section(file, "", "`print(cyclescope.find_tensor_cycles())` prints:", trace)


def trace_of(pattern: str) -> Path | None:
    """The approved trace of a fixture with this pattern, best of the fixture named so."""
    ending = f"cyclescope explain {pattern}\n"
    traces = [file for file in sorted(TRACES.glob("*.txt")) if ending in file.read_text("utf-8")]
    named = TRACES / f"{pattern.replace('-', '_')}.txt"
    return named if named in traces else next(iter(traces), None)


def section(file: str, function: str, how: str, said: Path) -> str:
    """The part of a page that shows a program and what is said of it."""
    first, code = shown(ROOT / file, function)
    return (
        f"## Example\n\n[`{file}`]({SOURCE}/{file}):\n\n"
        f'```python linenums="{first}"\n{code}\n```\n\n'
        f"{how}\n\n```text\n{said.read_text('utf-8').rstrip()}\n```\n\n"
    )


def shown(file: Path, function: str) -> tuple[int, str]:
    """The lines of a program to show, and the number of the first: one function, all functions
    and classes but what only tests need, or all below the docstring if something calls them."""
    text = file.read_text("utf-8")
    body = ast.parse(text).body
    if not function and not isinstance(body[-1], ast.FunctionDef | ast.ClassDef | ast.If):
        return body[1].lineno, "\n".join(text.splitlines()[body[1].lineno - 1 :])
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    parts = [node for node in ast.parse(text).body if isinstance(node, kinds)]
    parts = [node for node in parts if node.name == function or not function]
    parts = [node for node in parts if node.name not in NOT_SHOWN]
    first = min([parts[0].lineno, *(each.lineno for each in parts[0].decorator_list)])
    last = max(node.end_lineno or 0 for node in parts)
    return first, "\n".join(text.splitlines()[first - 1 : last])
