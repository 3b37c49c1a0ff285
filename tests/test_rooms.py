"""The rooms of ``src`` stand in one order, no two files import each other, and all are short.

The order is the table in ``src/lib.rs``. What is compiled for tests only may import anything.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"
ROOMS = re.findall(r"^//! \| \[?`(\w+)`\]? \|", (SRC / "lib.rs").read_text("utf-8"), re.MULTILINE)

Module = tuple[str, ...]


def module_of(file: Path) -> Module:
    parts = file.relative_to(SRC).with_suffix("").parts
    return parts[:-1] if parts[-1] in ("mod", "lib") else parts


FILES = {module_of(file): file for file in sorted(SRC.rglob("*.rs"))}


def shipped(text: str) -> str:
    """The text without comments and without what is compiled for tests only."""
    text = re.sub(r"^\s*//.*\n", "", text, flags=re.MULTILINE)
    return re.split(r"^#\[cfg\(test\)\]\n(?=mod \w+ \{)", text, flags=re.MULTILINE)[0]


def for_tests_only() -> set[Module]:
    """The modules that are compiled for tests only."""
    found = set()
    for module, file in FILES.items():
        for name in re.findall(
            r"#\[cfg\(test\)\]\n(?:pub(?:\(crate\))? )?mod (\w+);", file.read_text("utf-8")
        ):
            found.add((*module, name))
    return found


def flattened(tree: str) -> Iterator[Module]:
    """``a::{b, c::d}`` as ``a::b`` and ``a::c::d``."""
    tree = tree.strip()
    whole = re.fullmatch(r"((?:\w+::)*)\{(.*)\}", tree, re.DOTALL)
    if whole is None:
        yield tuple(re.sub(r"\s+as\s+\w+$", "", tree).split("::"))
        return
    head = tuple(filter(None, whole[1].split("::")))
    depth, part = 0, ""
    for char in whole[2] + ",":
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            if part.strip():
                for path in flattened(part):
                    yield head + path
            part = ""
        else:
            part += char


def exported(module: Module) -> dict[str, Module]:
    """Where the names come from that a module re-exports from its own files."""
    text = shipped(FILES[module].read_text("utf-8"))
    found = {}
    for tree in re.findall(r"^pub(?:\([^)]*\))? use ([^;]+);", text, re.MULTILINE):
        for path in flattened(tree):
            if (*module, path[0]) in FILES:
                found[path[-1]] = (*module, path[0])
    return found


@functools.cache
def all_exported() -> dict[Module, dict[str, Module]]:
    return {module: exported(module) for module in FILES}


def imports(module: Module) -> Iterator[Module]:
    """The files of the crate that a file uses something of."""
    text = shipped(FILES[module].read_text("utf-8"))
    paths = [path for tree in re.findall(r"\buse ([^;]+);", text) for path in flattened(tree)]
    paths += [
        tuple(path.split("::"))
        for path in re.findall(r"(?<!use )\b((?:crate|super)(?:::\w+)+)", text)
    ]
    for path in paths:
        if path[0] == "crate":
            path = path[1:]
        elif path[0] == "super":
            # Of a module in the file, `super` is the file itself.
            above = len(path) - len([part for part in path if part != "super"])
            path = module[: len(module) - above] + path[above:]
        else:
            continue
        known = max(
            (path[:length] for length in range(len(path) + 1) if path[:length] in FILES), key=len
        )
        if len(path) > len(known):
            known = all_exported()[known].get(path[len(known)], known)
        if known and known != module:
            yield known


@functools.cache
def all_imports() -> dict[Module, set[Module]]:
    hidden = for_tests_only()
    return {module: set(imports(module)) for module in FILES if module not in hidden}


def test_every_room_has_a_place_in_the_order() -> None:
    rooms = {module[0] for module in FILES if module}
    assert rooms == set(ROOMS)


def test_a_room_imports_only_rooms_above_it() -> None:
    wrong = [
        f"{'/'.join(module)} imports {'/'.join(other)}"
        for module, others in all_imports().items()
        for other in sorted(others)
        if module and ROOMS.index(other[0]) > ROOMS.index(module[0])
    ]
    assert not wrong, "\n".join(wrong)


def test_no_files_import_each_other() -> None:
    """In a circle of any length; a room's ``mod.rs`` stands for what it re-exports."""
    state: dict[Module, int] = {}
    circles = []

    def visit(module: Module, way: list[Module]) -> None:
        state[module] = 1
        for other in sorted(all_imports().get(module, ())):
            if state.get(other) == 1:
                circle = [*way[way.index(other) :], other]
                circles.append(" -> ".join("/".join(each) for each in circle))
            elif other not in state:
                visit(other, [*way, other])
        state[module] = 2

    for module in all_imports():
        if module not in state:
            visit(module, [module])
    assert not circles, "\n".join(circles)


def test_no_file_has_over_600_lines() -> None:
    files = [*SRC.rglob("*.rs"), *(ROOT / "python").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    lines = {file: len(file.read_text("utf-8").splitlines()) for file in files}
    assert not [f"{file}: {count}" for file, count in lines.items() if count > 600]


def lines_of_code(function: ast.FunctionDef | ast.AsyncFunctionDef, text: list[str]) -> int:
    """Without empty lines, comments and the docstring, as clippy counts those of Rust."""
    first = function.body[0] if ast.get_docstring(function) is None else function.body[1]
    signature = range(function.lineno, function.body[0].lineno)
    body = range(first.lineno, (function.end_lineno or 0) + 1)
    lines = [text[number - 1].strip() for number in (*signature, *body)]
    return sum(bool(line) and not line.startswith("#") for line in lines)


def test_no_function_has_over_80_lines_of_code() -> None:
    found = []
    for file in (ROOT / "python").rglob("*.py"):
        text = file.read_text("utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and len(node.body) > (
                ast.get_docstring(node) is not None
            ):
                found.append((lines_of_code(node, text.splitlines()), f"{file.name} {node.name}"))
    assert max(found)[0] <= 80, max(found)
