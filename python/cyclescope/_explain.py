"""The pages that explain leak patterns."""

from __future__ import annotations

from cyclescope import _native


def explain(pattern: str) -> str:
    """The page about a leak pattern: why it leaks, an example, and what to use instead.

    Args:
        pattern: Name of the pattern, such as ``closure-captures-owner``; see :attr:`Leak.pattern`.

    Raises:
        ValueError: If there is no such pattern. The message suggests similar names.
    """
    pages = dict(_native.patterns())
    try:
        return pages[pattern]
    except KeyError:
        raise ValueError(_unknown(pattern, list(pages))) from None


def overview() -> str:
    """One line per pattern: its name and the heading of its page."""
    pages = _native.patterns()
    width = max(len(name) for name, _ in pages)
    return "".join(f"{name:{width}}  {_heading(page)}\n" for name, page in pages)


def _heading(page: str) -> str:
    return page.partition("\n")[0].removeprefix("# ")


def _unknown(pattern: str, names: list[str]) -> str:
    # Imported here because only a mistyped name needs it.
    from difflib import get_close_matches

    near = get_close_matches(pattern, names, cutoff=0.5)
    near += [name for name in names if pattern and pattern in name and name not in near]
    advice = (
        f"did you mean {' or '.join(near)}?" if near else f"the patterns are {', '.join(names)}"
    )
    return f"unknown pattern {pattern!r}: {advice}"
