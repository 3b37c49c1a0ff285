"""The pages that explain what reports name: leak patterns, growth and out-of-memory verdicts."""

from __future__ import annotations

from collections.abc import Iterator

from cyclescope import _native
from cyclescope._selection import SIGNATURE
from cyclescope._suggest import enumerated

KNOWN = "Known leaks of libraries"


def explain(name: str) -> str:
    """The page about a pattern or verdict: why it happens, an example, and what to use instead.

    Args:
        name: Name of a leak pattern, such as ``closure-captures-owner`` (:attr:`Leak.pattern`), of
            growth, such as ``kept-with-graph`` (:attr:`Growth.pattern`), or the verdict of a
            post-mortem, such as ``fragmentation``; or of a known leak of a library
            (:attr:`Leak.known`).

    Raises:
        TypeError: If the name is no string.
        ValueError: If there is no such page. The message suggests a similar name.
    """
    if not isinstance(name, str):
        raise TypeError(f"explain() takes the name of a page as a string, not {name!r}")
    pages = _pages()
    known = dict(_native.known_leaks())
    try:
        return pages[name] if name in pages else _wrapped(known[name])
    except KeyError:
        raise ValueError(_unknown(name, list(pages), list(known))) from None


def _wrapped(page: str) -> str:
    import textwrap

    paragraphs = page.strip().split("\n\n")
    return "\n\n".join(textwrap.fill(each, 100) for each in paragraphs) + "\n"


def overview() -> str:
    """One line per page, in groups: its name and its heading."""
    width = max(len(name) for _, name, _ in sections())
    groups: dict[str, list[str]] = {}
    for about, name, page in sections():
        groups.setdefault(f"{about}:", []).append(f"  {name:{width}}  {heading(page)}".rstrip())
    return "\n\n".join("\n".join([about, *lines]) for about, lines in groups.items()) + "\n"


def _pages() -> dict[str, str]:
    return {name: page for _, pages in _native.explanations() for name, page in pages}


def sections() -> Iterator[tuple[str, str, str]]:
    """What each page is about, its name, and its text."""
    for about, pages in _native.explanations():
        for name, page in pages:
            yield about, name, page
    for name, page in dict(_native.known_leaks()).items():
        yield KNOWN, name, page


def heading(page: str) -> str:
    """The heading of a page; of a known leak, whose library."""
    first = page.partition("\n")[0].removeprefix("# ").removeprefix("Out of memory: ")
    known = "A known leak of "
    return first.removeprefix(known).partition(":")[0] if first.startswith(known) else first


def _unknown(name: str, names: list[str], known: list[str]) -> str:
    if SIGNATURE.fullmatch(name):
        return (
            f"{name} is the signature of a leak, which `cyclescope report FILE` shows. The page to "
            "explain it has the name of its pattern"
        )
    # Imported here because only a mistyped name needs it.
    from difflib import get_close_matches

    meant = name.lower().replace("_", "-").strip("-")
    near = [other for other in names if meant and meant in other]
    near = near or [other for other in known if meant and meant in other]
    near = near or get_close_matches(meant, [*names, *known], cutoff=0.5)
    if near:
        return f"unknown name {name!r}: did you mean {enumerated(near, 'or')}?"
    return f"unknown name {name!r}: `cyclescope explain` lists all"
