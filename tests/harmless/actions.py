"""What finalizers and callbacks of the random programs do: everything that none should."""

from __future__ import annotations

import gc
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any

from objects import (
    Final,
    Node,
    Slotted,
    can_be_weakly_referred_to,
    label,
    link,
    mixture,
    own,
    weak_callback,
    world,
)


class Actor:
    """Chooses what to do next, in the order in which it is asked."""

    def __init__(self) -> None:
        self.watch: Callable[[], None] = lambda: None
        """Starts or stops a watch, in the modes that have one."""
        self.callbacks: list[Any] = []
        """The entries of gc.callbacks that are the program's."""
        self.live: list[Any] = []
        """What the program never lets go, before it ends."""
        self.chosen: list[Callable[[Any], None]] = []
        """What is done in this program."""
        self.budget = 0
        self.depth = 0
        self.chance = 0.5
        self.froze = False
        self.walks = False
        """In this program, entries of gc.callbacks may go while the list is being walked."""

    def begin(self) -> None:
        dice = world.random
        count = dice.choice((0, 1, 2, 3, 5, 8, 40, 40))
        self.chosen = ACTIONS if count == 40 else [dice.choice(ACTIONS) for _ in range(count)]
        self.budget, self.depth = 40, 0
        self.chance = dice.choice((0.2, 0.5, 1.0))
        # What takes an entry out hides the next one from the walk, and which that is depends on
        # whether there is another callback at all. Only entries at the end are the same always.
        self.walks = dice.random() < 0.3
        self.live = [["weights"], Node(), Final(), {"key": Slotted()}]

    def act(self, it: Any) -> None:
        dice = world.random
        if not self.chosen or self.budget <= 0 or self.depth > 2 or dice.random() > self.chance:
            return
        self.budget -= 1
        self.depth += 1
        try:
            dice.choice(self.chosen)(it)
        finally:
            self.depth -= 1


actor = Actor()


def state() -> None:
    """Log all that a program can see of the collector."""
    world.event(
        "state",
        gc.get_debug(),
        gc.isenabled(),
        gc.get_threshold(),
        gc.get_count()[1:],
        [label(it) for it in gc.garbage],
        [it.name for it in gc.callbacks if isinstance(it, Callback)],
        statistics(),
    )


base: list[dict[str, Any]] = []
"""The statistics when the program began."""


def statistics() -> list[dict[str, int]]:
    """What came since, without what a watch may change, and without times."""
    return [
        {key: now[key] - then[key] for key in now if key not in ("candidates", "duration")}
        for now, then in zip(gc.get_stats(), base, strict=True)
    ]


class Callback:
    """An entry of gc.callbacks that logs, and acts."""

    def __init__(self, acts: float) -> None:
        self.name = world.number()
        self.acts = acts

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        if not world.quiet:
            seen = {k: v for k, v in info.items() if k not in ("candidates", "duration")}
            world.event("callback", self.name, phase, seen, len(gc.garbage))
            if world.random.random() < self.acts:
                world.act(None)


def resurrect(it: Any) -> None:
    if it is not None:
        world.kept.append(it)


def resurrect_into_garbage(it: Any) -> None:
    if it is not None:
        gc.garbage.append(it)


def collect(_: Any) -> None:
    generation = world.random.randrange(3)
    world.event("collect", generation, gc.collect(generation))


def freeze(_: Any) -> None:
    actor.froze = True
    gc.freeze()


def unfreeze(_: Any) -> None:
    # All there is takes part in the next full collection then, which takes its time.
    if actor.froze or world.random.random() < 0.1:
        actor.froze = True
        gc.unfreeze()


def clear_itself(it: Any) -> None:
    if hasattr(type(it), "__dict__") and hasattr(it, "__dict__") and type(it) is not type:
        attributes = it.__dict__
        if type(attributes) is dict:
            attributes.clear()


def clear_neighbours(it: Any) -> None:
    if it is None:
        return
    for neighbour in gc.get_referents(it):
        for one in [neighbour, *gc.get_referents(neighbour)]:
            if one is world.kept or one is world.log or one is gc.garbage:
                continue
            if type(one) is list or type(one) is set:
                one.clear()
            elif type(one) in (Node, Final):
                one.__dict__.clear()


def unlink(it: Any) -> None:
    if issubclass(type(it), Node):
        it.__dict__.pop(f"r{world.random.randrange(4)}", None)


def relink(it: Any) -> None:
    if issubclass(type(it), Node):
        link(it, world.random.choice(actor.live))


def live_into_garbage(_: Any) -> None:
    gc.garbage.append(world.random.choice(actor.live))


def shorten_garbage(_: Any) -> None:
    how = world.random.randrange(4)
    if how == 0:
        gc.garbage.clear()
    elif how == 1:
        del gc.garbage[:1]
    elif how == 2:
        del gc.garbage[-2:]
    else:
        del gc.garbage[::2]


FLAGS = (
    gc.DEBUG_SAVEALL,
    gc.DEBUG_SAVEALL,
    gc.DEBUG_UNCOLLECTABLE,
    gc.DEBUG_COLLECTABLE,
    gc.DEBUG_STATS,
    gc.DEBUG_LEAK,
)


def set_flags(_: Any) -> None:
    gc.set_debug(world.random.choice(FLAGS))


def add_flag(_: Any) -> None:
    gc.set_debug(gc.get_debug() | world.random.choice(FLAGS))


def clear_flags(_: Any) -> None:
    world.event("flags", gc.get_debug())
    gc.set_debug(0)


def add_callback(_: Any) -> None:
    if len(actor.callbacks) > 4:
        return
    mine = Callback(world.random.choice((0, 0.2, 0.6)))
    actor.callbacks.append(mine)
    if actor.walks or world.random.random() < 0.6:
        gc.callbacks.append(mine)
    else:
        gc.callbacks.insert(0, mine)


def remove_callback(_: Any) -> None:
    if actor.walks and actor.callbacks:
        mine = actor.callbacks.pop(world.random.randrange(len(actor.callbacks)))
        if mine in gc.callbacks:
            gc.callbacks.remove(mine)


def clear_callbacks(_: Any) -> None:
    if world.random.random() < 0.2:
        gc.callbacks.clear()


def fail(_: Any) -> None:
    raise world.random.choice((ValueError, KeyboardInterrupt, SystemExit, RecursionError))


def make_cycles(_: Any) -> None:
    for _unused in range(world.random.randint(1, 3)):
        one, other = Final(), Node()
        one.r0, other.r0 = other, one  # type: ignore[attr-defined]


def make_mixture(_: Any) -> None:
    world.kept.append(mixture(4))


def look_at_all(_: Any) -> None:
    found = gc.get_objects()
    world.event("objects", own(found))


def keep_all(_: Any) -> None:
    """Hold on to everything that there is, a watch's own objects too."""
    world.kept.append(gc.get_objects())


def keep_some(_: Any) -> None:
    generation = world.random.randrange(3)
    found = [it for it in gc.get_objects(generation=generation) if type(it) in (Node, Final)]
    world.event("objects", generation, own(found))
    world.kept.extend(found[::3])


def look_at_referrers(it: Any) -> None:
    if it is not None:
        found = gc.get_referrers(it)
        world.event("referrers", own(found))
        world.kept.extend(one for one in found if type(one) is Node)


def look_at_itself(it: Any) -> None:
    world.event("itself", label(it), sys.getrefcount(it) if it is not None else 0)
    if it is not None:
        world.event("known", gc.is_tracked(it), gc.is_finalized(it))


def enable(_: Any) -> None:
    """Nothing follows by itself: the thresholds are out of reach."""
    (gc.enable if world.random.random() < 0.5 else gc.disable)()


def set_thresholds(_: Any) -> None:
    gc.set_threshold(100_000 + world.random.randrange(9), 10, world.random.randint(5, 15))


def watch(_: Any) -> None:
    if not actor.walks:
        actor.watch()


def refer_weakly(it: Any) -> None:
    if it is not None and can_be_weakly_referred_to(it):
        world.held.append(weakref.ref(it, weak_callback(world.number(), True)))


def let_go(_: Any) -> None:
    del world.kept[::2]


def look_at_state(_: Any) -> None:
    state()


def wait(_: Any) -> None:
    """Other threads have their turn, in the middle of a collection."""
    if world.random.random() < 0.2:
        time.sleep(0)


ACTIONS: list[Callable[[Any], None]] = [
    resurrect,
    resurrect,
    resurrect_into_garbage,
    collect,
    freeze,
    unfreeze,
    clear_itself,
    clear_neighbours,
    unlink,
    relink,
    live_into_garbage,
    shorten_garbage,
    set_flags,
    add_flag,
    clear_flags,
    add_callback,
    remove_callback,
    clear_callbacks,
    fail,
    make_cycles,
    make_mixture,
    look_at_all,
    keep_all,
    keep_some,
    look_at_referrers,
    look_at_itself,
    enable,
    set_thresholds,
    watch,
    refer_weakly,
    let_go,
    look_at_state,
    look_at_state,
    wait,
]
