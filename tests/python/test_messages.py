"""The words that people see: short sentences, lines that fit, the right article, known terms.

Looked at are the texts in the code, of Python and of Rust, as they stand there, the pages, and what
``help()`` says of the public API. What is rendered from them is no wider than 100 columns:
``tests/render/test_traces.py`` looks at each warning.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import cyclescope
from cyclescope import _native
from cyclescope.__main__ import COMMANDS, make_parser

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md")])

MOST_WORDS = 30
"""In a sentence, or in a part of it before a colon or a semicolon."""
MOST_CHARACTERS = 350
"""In a message, with the names of what is filled in."""
NO_PROSE = re.compile(
    r"[<>]\w|^[a-z-]+ '|^\w+=|^\s*(?:import|def|try|type\(|lambda)|\{$", re.MULTILINE
)
"""HTML, CSS and code."""

# Words that no reader would use, and what there is for them in docs/glossary.md.
UNWANTED = {
    r"(?<!-)\balike\b": "similar",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\bmanieth\b": "every N steps",
    r"\bnot to tell of\b": "ignored",
    r"\bprice of\b": "cost",
    r"\bworks no more\b": "no longer works",
    r"\b(?:cut|look at) [^.;]* and \S+ more\b": "cut 3 references, such as",
    r"\b(?:is|are|be|been|first|just) told\b": "reported",
    r"\b(?:tell|tells|told) of\b": "report, describe",
    r"\b(?:are|is) no tensors?\b": "is not a tensor",
    r"\bbecome more\b": "a growing number of",
    r"\bany more\b": "no longer",
    r"\bnot all there\b": "still being imported",
    r"\botherwise given\b|\bgives? (?:\S+ )?otherwise\b": "another value",
    r"\b[Ll]et go when\b": "released when",
    r"\b(?:value|finding|frame)s? of ours\b": "of cyclescope",
    r"\bit is looked\b": "look",
    r"\bare come to\b|\bcomes to through\b": "reached",
}


def texts() -> Iterator[tuple[str, str]]:
    """Where each text of the code stands, and the text."""
    for file in sorted((ROOT / "python" / "cyclescope").rglob("*.py")):
        for line, text in of_python(ast.parse(file.read_text("utf-8"))):
            yield f"{file.name}:{line}", text
    for file in sorted((ROOT / "src").rglob("*.rs")):
        if "sample" not in file.name and file.name not in ("tests.rs", "properties.rs"):
            for line, text in of_rust(file.read_text("utf-8")):
                yield f"{file.relative_to(ROOT / 'src')}:{line}", text


def of_python(module: ast.Module) -> Iterator[tuple[int, str]]:
    """The strings, those with something filled in as a whole, without docstrings."""
    within = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            within.add(node.value)
        if isinstance(node, ast.JoinedStr):
            within |= {each for each in ast.walk(node) if isinstance(each, ast.Constant)}
            parts = (each.value if isinstance(each, ast.Constant) else "{}" for each in node.values)
            yield node.lineno, "".join(map(str, parts))
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in within:
            yield node.lineno, node.value


def of_rust(source: str) -> Iterator[tuple[int, str]]:
    """The strings of a file, without those of its comments and tests."""
    source = source.partition("#[cfg(test)]\nmod tests")[0]
    for found in re.finditer(
        r"^\s*//[^\n]*|\"((?:[^\"\\]|\\.)*)\"", source, re.MULTILINE | re.DOTALL
    ):
        if found[1] is not None:
            text = re.sub(r"\\\n\s*", "", found[1]).replace("\\n", "\n")
            yield source.count("\n", 0, found.start()) + 1, text


MESSAGES = [
    (place, text)
    for place, text in texts()
    if text.count(" ") >= 2 and not NO_PROSE.search(text) and re.search(r"[a-z]{3}", text)
]


def test_there_are_messages_in_both_languages() -> None:
    files = {place.partition(":")[0] for place, _ in MESSAGES}
    assert {"_warner.py", "run.py", "watch/mod.rs", "diagnose/growth.rs"} <= files
    assert len(MESSAGES) > 600


def test_messages_are_short_sentences() -> None:
    for place, text in MESSAGES:
        for line in text.split("\n\n"):
            assert len(line) <= MOST_CHARACTERS or line.count("\n") > 2, (place, line)
        for sentence in re.split(r"[.;:]\s|\n", text):
            assert len(sentence.split()) <= MOST_WORDS, (place, sentence)


def test_help_fits_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    for command in COMMANDS:
        parser = make_parser([command])
        (commands,) = [
            action.choices[command]
            for action in parser._actions
            if isinstance(action.choices, dict) and command in action.choices
        ]
        for line in commands.format_help().splitlines():
            assert len(line) <= 100, (command, line)


def docstrings() -> Iterator[tuple[str, str]]:
    """What ``help()``, and an editor that reads the stub, says of each public name."""
    for name in cyclescope.__all__:
        each = getattr(cyclescope, name)
        yield name, inspect.getdoc(each) or ""
        for member in vars(each) if inspect.isclass(each) else ():
            if not member.startswith("_"):
                yield f"{name}.{member}", inspect.getdoc(getattr(each, member)) or ""
    stub = ast.parse(Path(cyclescope.__path__[0], "_native.pyi").read_text("utf-8"))
    for node in ast.walk(stub):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            yield f"_native.pyi:{node.lineno}", text


def prose() -> Iterator[tuple[str, str]]:
    """All words that people see, but for code."""
    yield from MESSAGES
    yield from docstrings()
    for file in PAGES:
        for number, line in enumerate(without_code(file.read_text("utf-8")).splitlines(), 1):
            yield f"{file.name}:{number}", line
    for _, pages in _native.explanations():
        for name, page in pages:
            yield name, without_code(page)


def without_code(page: str) -> str:
    """A page of Markdown with its blocks of code emptied."""
    return re.sub(r"^ *```.*?^ *```", lambda it: "\n" * it[0].count("\n"), page, flags=re.M | re.S)


def test_articles_fit_the_word_that_follows() -> None:
    # "a one", "a unit", "a user"; "an hour", "an f-string", "an MLX array".
    wrong = re.compile(
        r"\ba (?!one\b|once\b|uni|us[eiu]|util|eu)[aeiou]\w"
        r"|\ban (?!ho[un]|heir|\w-)[b-df-hj-np-tv-z]"
    )
    for place, text in prose():
        assert wrong.search(text) is None, (place, text)


@pytest.mark.parametrize("word", UNWANTED)
def test_the_terms_are_those_of_the_glossary(word: str) -> None:
    for place, text in prose():
        assert re.search(word, text) is None, (place, text, f"better: {UNWANTED[word]}")
