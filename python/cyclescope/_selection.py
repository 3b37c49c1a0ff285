"""Validation of ``ignore``, an argument that many functions share."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from typing import TypeAlias

from cyclescope import _log, _native
from cyclescope._off import OFF
from cyclescope._suggest import nearest

StrPath: TypeAlias = str | os.PathLike[str]

SIGNATURE = re.compile("[0-9a-f]{16}")

ALIKE = 0.8
"""How alike the name of a leak and one to ignore must be, of 1, to be taken for a mistake."""


def ignored_names(ignore: object, say: Callable[[str], object] = _log.warning) -> list[str]:
    """Validate ``ignore`` and return it as a list.

    Args:
        ignore: What the user has given.
        say: Tells of a name that nothing has, once, if something has a similar one.

    Raises:
        ValueError: If ``ignore`` is not a list of names.
    """
    if not isinstance(ignore, (list, tuple, set, frozenset)):
        meant = f"; did you mean {[ignore]!r}?" if isinstance(ignore, str) and ignore else ""
        raise ValueError(
            f"ignore must be a list of signatures, patterns or libraries, such as ['torch'], "
            f"not {ignore!r}{meant}"
        )
    for name in ignore:
        if not isinstance(name, str) or not name.strip():
            raise ValueError(
                "ignore must list signatures, patterns or libraries, such as 'torch' or "
                f"'closure-captures-owner', not {name!r}"
            )
        if len(name.split()) > 1 and name != "the standard library":
            raise ValueError(
                f"ignore must list one name each, but {name!r} has a space; "
                f"did you mean {name.split()!r}?"
            )
        near = None if name in _looked_up else _similar(name)
        _looked_up.add(name)
        if near is not None:
            say(f"ignore names {name!r}, but nothing has that name; did you mean {near!r}?")
    return list(ignore)


def redact_if(redact: object) -> None:
    """Leave the program's data out of all reports from now on, if that is asked for.

    Raises:
        TypeError: If ``redact`` is neither true nor false: ``"no"`` would redact.
    """
    if not isinstance(redact, bool):
        raise TypeError(f"redact must be True or False, not {redact!r}")
    if redact:
        _native.redact()


_looked_up: set[str] = set()


def _similar(name: str) -> str | None:
    """A name that something has, if nothing has this one."""
    known = {*dict(_native.patterns()), *dict(_native.known_leaks())}
    modules = {module.partition(".")[0] for module in list(sys.modules) if type(module) is str}
    if OFF or name in known or name in modules or SIGNATURE.fullmatch(name) is not None:
        return None
    # Libraries need not be imported yet, and may be named as the package index does.
    if _is_installed(name):
        return None
    libraries = [each for each in modules if not each.startswith("_")]
    near = nearest(name, [*known], ALIKE) or nearest(name, libraries, ALIKE)
    return near or nearest(name, _installed(), ALIKE)


def _is_installed(name: str) -> bool:
    from importlib.util import find_spec

    try:
        if "." not in name and find_spec(name.replace("-", "_")) is not None:
            return True
        from importlib.metadata import PackageNotFoundError, distribution
    except (ImportError, ValueError):
        return False
    try:
        distribution(name)
    except (ImportError, ValueError, PackageNotFoundError):
        return False
    return True


def _installed() -> list[str]:
    """The names of all modules that can be imported."""
    from pkgutil import iter_modules

    return [module.name for module in iter_modules()]
