"""References on the stack of a suspended function: from 3.14 on, some have no reference count."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from cyclescope import _native

CASES = int(os.environ.get("TEST_CASES", "60"))

#: Where a function waits, with what on its stack. `x`, `y` and `z` are its variables, `WAIT` waits.
WAITS = [
    "[x, x, x, WAIT]",
    "(x, y, WAIT, x)",
    "{1: x, 2: y, 3: WAIT}",
    "{x, y, WAIT}",
    "use(x, y, WAIT)",
    "use(x, *(y, x), key=x, other=WAIT)",
    "x.use(x, y, WAIT)",
    "x.use(y, (x, WAIT))",
    "f'{x}{y}{WAIT}'",
    "(x, x, (y, WAIT), y)",
    "(x, y) == (y, WAIT)",
    "[x, y][WAIT or 0]",
    "[each for each in (x, y, WAIT)]",
    "x if WAIT else y",
    "(lambda: (x, y))() + (x, WAIT)",
]
#: What is around it.
BODIES = [
    "    kept = {}",
    "    return {}",
    "    for each in (x, y): kept = {}",
    "    while True: kept = (lambda *v: v)(*[x, {}])",
    "    with x: kept = {}",
    "    try:\n        raise ValueError(x)\n    except ValueError as error: kept = {}",
    "    try:\n        kept = {}\n    finally: use(x, x)",
    "    z.slot = {}",
    "    z[0] = {}",
    "    x.me = None; kept = [y, {}]",
    "    x, y = y, x; kept = {}",
    "    other = x; x = None; x = other; kept = {}",
    "    match x:\n        case Node(): kept = {}",
]
HEADS = {
    "def function(x, y, z):": "(yield)",
    "async def function(x, y, z):": "(await Pause())",
    "async def function(x, y, z, *, more=None):\n    yield": "(await Pause())",
}


class Node:
    """Refers to itself, and can be everything that the functions do with their variables."""

    def __init__(self) -> None:
        self.me = self

    def use(self, *values: object) -> None:
        pass

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __getitem__(self, key: object) -> Node:
        return self

    def __setitem__(self, key: object, value: object) -> None:
        pass


class Pause:
    def __await__(self) -> Iterator[None]:
        yield


def use(*values: object, **named: object) -> None:
    pass


def suspended(rng: random.Random, nodes: list[Node]) -> Any:
    """Start a function that then waits."""
    head, wait = rng.choice(list(HEADS.items()))
    body = rng.choice(BODIES)
    filled = body.replace("{}", rng.choice(WAITS).replace("WAIT", wait))
    if "yield" in head and "async" in head:
        filled = filled.replace("return ", "kept = ")
    names: dict[str, Any] = {"use": use, "Node": Node, "Pause": Pause}
    exec(f"{head}\n{filled}\n", names)
    made = names.pop("function")(*rng.choices(nodes, k=3))
    if isinstance(made, types.AsyncGeneratorType):
        step = made.__anext__()
        try:
            step.send(None)
            step = made.__anext__()
            step.send(None)
        except (StopIteration, StopAsyncIteration):
            pass
        return made
    with contextlib.suppress(StopIteration):
        made.send(None)
    return made


def frame_of(made: Any) -> types.FrameType | None:
    for name in ("gi_frame", "cr_frame", "ag_frame"):
        frame: types.FrameType | None = getattr(made, name, None)
        if frame is not None:
            return frame
    return None


def completed(*nodes: object) -> types.FrameType:
    return sys._getframe()


def program(rng: random.Random) -> tuple[list[object], dict[int, weakref.ref[Any]]]:
    """Suspended functions and objects that hold each other: what stays alive, all by address."""
    seen: dict[int, weakref.ref[Any]] = {}
    nodes = [Node() for _ in range(rng.randint(1, 4))]
    kept: list[object] = []
    for _ in range(rng.randint(1, 4)):
        made = suspended(rng, nodes)
        seen[id(made)] = weakref.ref(made)
        frame = frame_of(made)
        if frame is not None and rng.random() < 0.3:
            rng.choice(nodes).frame = frame  # type: ignore[attr-defined]
            if sys.version_info >= (3, 13) and rng.random() < 0.5:
                # From here on, what lies on the stack may be held by nothing else of the function.
                frame.f_locals[rng.choice("xyz")] = rng.choice(nodes)
        del frame
        if rng.random() < 0.8:
            rng.choice(nodes).made = made  # type: ignore[attr-defined]
        if rng.random() < 0.2 and not kept:
            kept.append(made)
        del made
    if rng.random() < 0.3:
        rng.choice(nodes).over = completed(*nodes)  # type: ignore[attr-defined]
    if rng.random() < 0.5:
        kept.append(rng.choice(nodes))
    seen.update((id(node), weakref.ref(node)) for node in nodes)
    return kept, seen


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    """No collection but ours, and none of the modules in it."""
    was_enabled = gc.isenabled()
    gc.disable()
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    if was_enabled:
        gc.enable()


def addresses_found() -> set[int]:
    return {id(thing) for thing in _native.unreachable_objects()}


def addresses_from(roots: list[object]) -> set[int]:
    """Addresses of all that can be reached, not by way of classes, functions and globals."""
    reached: dict[int, object] = {}
    coming = roots[:]
    while coming:
        thing = coming.pop()
        is_large = isinstance(thing, type | types.FunctionType | types.CodeType)
        is_globals = isinstance(thing, dict) and "__builtins__" in thing
        if id(thing) not in reached and not is_large and not is_globals:
            reached[id(thing)] = thing
            coming += gc.get_referents(thing)
    return set(reached)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_suspended_keeps_what_it_refers_to() -> None:
    garbage = 0
    for seed in range(CASES):
        kept, seen = program(random.Random(seed))
        # The collector does not know variables. A list would show it that the items are reachable.
        first, second = [*kept, None, None][:2]
        del kept
        seen = {address: thing for address, thing in seen.items() if thing() is not None}
        found = addresses_found() & seen.keys()
        assert not found & addresses_from([first, second]), f"seed {seed}"
        gc.collect()
        died = {address for address, thing in seen.items() if thing() is None}
        assert died <= found, f"seed {seed}"
        garbage += len(found)
        del first, second
        gc.collect()
    assert garbage > CASES


def test_a_live_object_on_the_stack_of_garbage_is_not_garbage() -> None:
    node = Node()

    def waits(x: object) -> Iterator[None]:
        assert [x, x, x, (yield)]

    made = waits(node)
    next(made)
    holder = [made]
    holder.append(holder)  # type: ignore[arg-type]
    address = id(holder)
    del made, holder
    found = addresses_found()
    assert address in found
    assert id(node) not in found
    del node


def test_a_running_generator_asks_for_itself() -> None:
    node = Node()

    found: list[set[int]] = []

    def asks(x: object) -> Iterator[None]:
        use(x, x, [x, found.append(addresses_found())])  # type: ignore[func-returns-value]
        yield

    made = asks(node)
    next(made)
    assert not found[0] & {id(node), id(made)}
