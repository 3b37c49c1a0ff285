"""Host programs with callbacks of their own."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from .parts import (
    Acts,
    Loud,
    Node,
    aftermath,
    comparable,
    others_first,
    program,
    state,
    throws_callbacks_out,
)


@throws_callbacks_out
def callbacks_cleared_in_finalizer() -> None:
    Acts(lambda _: gc.callbacks.clear())
    Node()
    print(gc.collect())
    state()
    aftermath()


@throws_callbacks_out
def callbacks_cleared_in_weakref_callback() -> None:
    node = Node()
    weak = weakref.ref(node, lambda _: gc.callbacks.clear())
    del node
    print(gc.collect(), weak())
    state()
    aftermath()


@throws_callbacks_out
def callbacks_cleared_at_start() -> None:
    gc.callbacks.append(lambda phase, _: gc.callbacks.clear() if phase == "start" else None)
    Node()
    print(gc.collect())
    state()
    aftermath()


@throws_callbacks_out
def callbacks_cleared_at_stop_by_a_newcomer() -> None:
    def newcomer(phase: str, _: object) -> None:
        if phase == "stop":
            gc.callbacks.clear()

    Acts(lambda _: others_first(newcomer))
    Node()
    print(gc.collect())
    gc.collect()
    state()
    aftermath()


@program
def callbacks_put_aside_in_finalizer() -> None:
    saved: list[Any] = []

    def put_aside(_: Acts) -> None:
        saved.extend(gc.callbacks)
        gc.callbacks.clear()

    Acts(put_aside)
    Node()
    print(gc.collect())
    state()
    gc.callbacks[:] = saved
    saved.clear()
    aftermath()


@throws_callbacks_out
def callbacks_put_aside_for_ever() -> None:
    saved = list(gc.callbacks)
    Acts(lambda _: gc.callbacks.clear())
    Node()
    print(gc.collect())
    state()
    aftermath()
    print(all(callable(callback) for callback in saved))


@throws_callbacks_out
def callbacks_put_aside_by_garbage() -> None:
    def put_aside(me: Acts) -> None:
        me.name = list(gc.callbacks)
        gc.callbacks.clear()

    Acts(put_aside)
    Node()
    print(gc.collect())
    state()
    aftermath()


@program
def another_callback_raises() -> None:
    def raises(phase: str, _: object) -> None:
        raise ValueError(phase)

    gc.callbacks.append(raises)
    others_first(raises)
    Node()
    print(gc.collect())
    state()
    del gc.callbacks[-1]
    gc.callbacks.remove(raises)


@program
def another_callback_comes_first() -> None:
    seen: list[Any] = []
    others_first(lambda phase, info: seen.append((phase, len(gc.garbage), comparable(info))))
    for _ in range(3):
        Node()
        print(gc.collect())
    print(seen)
    state()


@program
def another_callback_empties_garbage() -> None:
    others_first(lambda phase, _: gc.garbage.clear() if phase == "stop" else None)
    for _ in range(5):
        Node()
        gc.collect()
    state()


@program
def a_newcomer_takes_hold_of_garbage() -> None:
    """It comes first at "stop" and keeps what it finds in the program's list."""
    stash: list[Any] = []

    def newcomer(phase: str, _: object) -> None:
        if phase == "stop":
            stash.extend(thing for thing in gc.garbage if type(thing) is Node)

    Acts(lambda _: others_first(newcomer))
    Node("held")
    Loud("not held")
    gc.collect()
    print([(n.name, n.me is n, n.array.size) for n in stash])
    gc.callbacks.remove(newcomer)
    stash.clear()
    gc.collect()
    state()


@program
def a_newcomer_empties_garbage() -> None:
    def newcomer(phase: str, _: object) -> None:
        if phase == "stop":
            gc.garbage.clear()
            gc.callbacks.remove(newcomer)

    Acts(lambda _: others_first(newcomer))
    Node()
    gc.collect()
    gc.collect()
    state()
