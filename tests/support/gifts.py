"""What a program does to an object of a library, in a file that names none.

A statement in a file that names the library may be what stored a reference, so that nobody blames
the library.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

GIFTS: dict[str, Callable[[Any, Any], object]] = {
    "item": lambda thing, _: thing.items.append(thing),
    "added": lambda thing, _: thing.add(thing),
    "named": lambda thing, _: thing.name("me", thing),
    "key": lambda thing, _: thing.named.update(me=thing),
    "parent": lambda thing, _: setattr(thing, "parent", thing),
    "hook": lambda thing, _: thing.register(thing.run),
    "lambda": lambda thing, _: thing.register(lambda: thing),
    "partial": lambda thing, kind: thing.register(functools.partial(kind.run, thing)),
    "adopted": lambda thing, kind: thing.adopt(kind(thing)),
    "adopted later": lambda thing, kind: setattr(thing, "child", kind(thing)),
    "two": lambda thing, kind: (lambda other: (thing.add(other), other.add(thing)))(kind()),
    "replaced": lambda thing, _: setattr(thing, "run", thing.run),
}
