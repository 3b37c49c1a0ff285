"""Host programs about flags, ``gc.garbage``, and what finalizers do with garbage."""

from __future__ import annotations

import gc
import random
import sys
import weakref
from functools import partial
from typing import Any

from .parts import (
    Acts,
    Loud,
    Node,
    program,
    state,
)

# The program's own flags.


@program
def user_saves_all() -> None:
    gc.set_debug(gc.DEBUG_SAVEALL)
    Node("kept")
    print(gc.collect())
    state()
    (kept,) = [thing for thing in gc.garbage if type(thing) is Node]
    print(kept.name, kept.me is kept, kept.array.sum())
    gc.set_debug(0)
    gc.garbage.clear()
    del kept
    print(gc.collect())
    state()


@program
def user_debugs_leaks() -> None:
    gc.set_debug(gc.DEBUG_LEAK)
    Node("kept")
    print(gc.collect())
    state()
    gc.set_debug(0)


@program
def user_wants_statistics() -> None:
    gc.set_debug(gc.DEBUG_STATS | gc.DEBUG_COLLECTABLE)
    Node()
    print(gc.collect())
    state()
    gc.set_debug(0)


@program
def stderr_takes_hold_of_garbage() -> None:
    """CPython prints its statistics once the garbage is found: a moment to get at what is saved."""
    stash: list[Any] = []
    real = sys.stderr

    class Writer:
        def write(self, text: str) -> None:
            stash.extend(gc.garbage)

        def flush(self) -> None: ...

    sys.stderr = Writer()
    gc.set_debug(gc.DEBUG_STATS)
    Node("held")
    gc.collect()
    gc.set_debug(0)
    sys.stderr = real
    print([(n.name, n.me is n, n.array.size) for n in stash if type(n) is Node])
    stash.clear()
    gc.collect()
    state()


@program
def finalizer_sets_flags() -> None:
    Acts(lambda _: gc.set_debug(0))
    Node()
    gc.collect()
    state()
    Acts(lambda _: gc.set_debug(gc.DEBUG_SAVEALL | gc.DEBUG_UNCOLLECTABLE))
    Node()
    gc.collect()
    state()
    gc.set_debug(0)
    gc.garbage.clear()
    gc.collect()
    state()


# gc.garbage.


@program
def older_garbage_stays() -> None:
    older = [object(), [1], Node("older")]
    older[2].array = older  # type: ignore[attr-defined]
    gc.garbage.extend(older)
    Node()
    gc.collect()
    state()
    print([mine is theirs for mine, theirs in zip(gc.garbage, older, strict=True)])
    gc.garbage.clear()


@program
def weak_references_die_of_their_callbacks() -> None:
    """CPython counts them as collected, but they are not garbage and not saved."""
    older = [object(), Node("older")]
    gc.garbage.extend(older)
    for count in (1, 5):
        names = weakref.WeakValueDictionary({n: Node(n) for n in range(count)})
        print(gc.collect(), len(names))
        state()
    print([mine is theirs for mine, theirs in zip(gc.garbage, older, strict=True)])
    print(older[1].me is older[1], older[1].name)  # type: ignore[attr-defined]
    gc.garbage.clear()


@program
def garbage_list_is_rebound() -> None:
    real = gc.garbage
    gc.garbage = []
    for _ in range(3):
        Node()
        gc.collect()
        print(len(real))
        state()


@program
def finalizer_empties_garbage() -> None:
    gc.garbage.extend([1, 2, 3, 4, 5, 6, 7, 8])
    Acts(lambda _: gc.garbage.clear())
    Node()
    gc.collect()
    state()


@program
def finalizer_adds_to_garbage() -> None:
    gc.garbage.append("older")
    mine = Node("mine")
    weak = weakref.WeakSet([mine])
    gc.garbage.append(mine)
    del mine
    Acts(lambda _: gc.garbage.append(["from a finalizer"]))
    Acts(lambda me: gc.garbage.append(me))
    gc.collect()
    state()
    print(gc.garbage[0], gc.garbage[2], [type(thing).__name__ for thing in gc.garbage], len(weak))
    gc.garbage.clear()


@program
def legacy_finalizers() -> None:
    try:
        from _testcapi import with_tp_del  # type: ignore[import-not-found]
    except ImportError:
        print("no _testcapi")
        return

    class Legacy:
        def __init__(self, name: str) -> None:
            self.name = name
            self.me = self
            self.reached = Node(name)

        def __tp_del__(self) -> None:
            print("tp_del", self.name)

    legacy = with_tp_del(Legacy)
    gc.garbage.append("older")
    legacy("a")
    Node("free")
    legacy("b")
    print(gc.collect())
    state()
    print([getattr(thing, "name", thing) for thing in gc.garbage])
    print([type(thing.reached).__name__ for thing in gc.garbage[1:]])
    print(gc.collect())
    state()
    for thing in gc.garbage[1:]:
        thing.me = None
        thing.reached.me = None
    del gc.garbage[:], thing
    print(gc.collect())
    state()


# Finalizers.


def gone(name: object, _: object) -> None:
    print("weakref", name)


@program
def finalizers_in_order() -> None:
    weaks: list[Any] = []
    for i in range(50):
        node = Loud(i)
        node.array = Loud(f"{i} behind")
        weaks.append(weakref.ref(node, partial(gone, i)))
        if i % 3 == 0:
            node.me = weaks
            weaks[-1]().array.me = node
    del node
    print(gc.collect())
    state()
    print(gc.collect())
    state()


class Plain:
    """Not a container, so not the collector's: dies by its reference count alone."""

    __slots__ = ("__weakref__",)

    def __del__(self) -> None:
        print("plain", names[id(self)])


names: dict[int, object] = {}


@program
def what_garbage_holds_dies_in_order() -> None:
    for i in range(20):
        node = Node()
        node.name = plain = Plain()
        names[id(plain)] = i
        inside = Plain()
        names[id(inside)] = f"{i} in a tuple"
        node.array = (inside, node)
        del plain, inside
    del node
    print(gc.collect())
    state()


@program
def older_object_dies_with_young_garbage() -> None:
    class Older:
        def __del__(self) -> None:
            print("older")

    older = Older()
    gc.collect()
    node = Node(older)
    weak = weakref.ref(older, lambda _: print("weakref of the older"))
    del older, node
    print(gc.collect(0), weak())
    state()


@program
def finalizer_resurrects() -> None:
    saved: list[Any] = []
    Acts(saved.append)
    node = Acts(saved.append)
    node.name = Loud("behind")
    Node("not resurrected")
    del node
    print(gc.collect())
    state()
    print([(type(n).__name__, n.me is n, n.array.size) for n in saved])
    saved.clear()
    print(gc.collect())
    state()


@program
def finalizer_raises() -> None:
    def fail(_: object) -> None:
        raise ValueError("from a finalizer")

    Acts(fail)
    print(gc.collect())
    state()


@program
def finalizer_collects() -> None:
    Acts(lambda _: print("nested", gc.collect()))
    print(gc.collect())
    state()


@program
def suspended_code_is_closed() -> None:
    def generator(name: str) -> Any:
        me = yield
        try:
            yield
        finally:
            print("closed", name, me is not None)

    for name in "ab":
        suspended = generator(name)
        next(suspended)
        suspended.send(suspended)
        del suspended
    print(gc.collect())
    state()


@program
def random_garbage() -> None:
    """Graphs of every shape; finalizers and weak reference callbacks in the collector's order."""
    for seed in range(30):
        dice = random.Random(seed)
        weaks = []
        nodes: list[Any] = [
            dice.choice([Node, Loud, list, dict, set])() for _ in range(dice.randint(1, 60))
        ]
        for node in nodes:
            for _ in range(dice.randint(0, 3)):
                other = dice.choice(nodes)
                if isinstance(node, list):
                    node.append((other,) if dice.random() < 0.5 else other)
                elif isinstance(node, dict):
                    node[dice.randint(0, 9)] = other
                elif isinstance(node, set):
                    node.add(partial(id, other))
                else:
                    setattr(node, dice.choice("ab"), other)
            if isinstance(node, Node):
                node.name = seed
                weaks.append(weakref.ref(node, partial(gone, seed)))
        del node, other, nodes
        print(seed, gc.collect(dice.randint(0, 2)), len([w for w in weaks if w() is None]))
    gc.collect()
    state()
