"""Names that may have been meant. What compares them is imported only where a name is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

CUTOFF = 0.6
"""How alike two names are at least, of 1."""


def nearest(name: str, names: Iterable[str], cutoff: float = CUTOFF) -> str | None:
    """The name that is most like another one; None if none is alike."""
    from difflib import get_close_matches

    by_folded = {_folded(each): each for each in names}
    near = get_close_matches(_folded(name), by_folded, n=1, cutoff=cutoff)
    return by_folded[near[0]] if near else None


def did_you_mean(name: str, names: Iterable[str], cutoff: float = CUTOFF) -> str:
    """The end of a sentence about a name that is unknown; empty if none is alike."""
    near = nearest(name, names, cutoff)
    return f"; did you mean {near!r}?" if near is not None else ""


def enumerated(names: Sequence[str], conjunction: str) -> str:
    """The names as a sentence lists them: ``a``, ``a or b``, ``a, b or c``."""
    *others, last = names
    return f"{', '.join(others)} {conjunction} {last}" if others else last


def no_attribute(owner: type, name: str) -> AttributeError:
    """The error for an attribute that the objects of a class do not have."""
    return _error(f"{owner.__name__!r} object has no attribute {name!r}", name, dir(owner))


def no_name(module: str, name: str, names: Iterable[str]) -> AttributeError:
    """The error for a name that a module does not have."""
    return _error(f"module {module!r} has no attribute {name!r}", name, names)


def _error(sentence: str, name: str, names: Iterable[str]) -> AttributeError:
    public = [each for each in names if not each.startswith("_")]
    # Tools look up names such as `_repr_mimebundle_` that nobody has misspelt.
    suggestion = "" if name.startswith("_") else did_you_mean(name, public)
    # With an `obj`, tracebacks of Python 3.12 and later would add the same suggestion.
    return AttributeError(sentence + suggestion, name=name, obj=None)


def _folded(name: str) -> str:
    return name.lower().lstrip("-").replace("-", "_")
