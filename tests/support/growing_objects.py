"""Programs in which objects that are no tensors become more, and programs that only look alike.

As in ``growing``: each takes a number of steps and what to call at the end of each.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import logging
import logging.handlers
import queue
import random
import sys
import tempfile
import threading
import types
import weakref
from collections.abc import Callable, Generator
from typing import Any

OnStep = Callable[[], object]
Program = Callable[[int, OnStep], None]

EACH = 40
"""So many objects are made in a step."""


@dataclasses.dataclass
class Event:
    """Something that has happened."""

    step: int
    name: str
    values: list[int]


def event(step: int) -> Event:
    """An event of a step."""
    return Event(step, f"event {step}", [step, step + 1])


class Holder:
    """An object that others refer to weakly."""

    def __init__(self, step: int) -> None:
        self.step = list(range(step, step + 50))

    def close(self) -> None:
        """Lets go of what it has."""
        self.step.clear()


class Trainer:
    """Keeps what it is told to."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.lines: list[str] = []
        self.by_step: dict[int, Any] = {}
        self.seen: set[str] = set()
        self.callbacks: list[Callable[[], int]] = []


@dataclasses.dataclass(frozen=True)
class Spec:
    """How a tensor is divided, as a key of a cache."""

    shape: tuple[int, ...]
    placements: tuple[str, ...]
    step: int


def cached_layouts(steps: int, on_step: OnStep) -> None:
    """A cache without limit, whose keys never come again."""

    @functools.cache
    def layout(spec: Spec) -> tuple[Spec, list[int]]:
        return spec, [*spec.shape]

    for step in range(steps):
        for number in range(EACH):
            layout(Spec((number, 8, 8), ("shard", "replicate"), step))
        on_step()


def events_in_list(steps: int, on_step: OnStep) -> None:
    """A list of all events."""
    trainer = Trainer()
    for step in range(steps):
        trainer.events.extend(event(step) for _ in range(EACH))
        on_step()


class Request:
    """Enters itself in a registry that all requests share."""

    registry: dict[int, Request] = {}  # noqa: RUF012

    def __init__(self, number: int) -> None:
        self.payload = [number] * 20
        self.registry[id(self)] = self


def requests_in_registry(steps: int, on_step: OnStep) -> None:
    """A registry from which nothing is deleted."""
    for step in range(steps):
        for _ in range(EACH):
            Request(step)
        on_step()
    Request.registry.clear()


class Node:
    """One of a chain."""

    __slots__ = ("before", "values")

    def __init__(self, before: Node | None) -> None:
        self.before = before
        self.values = [0] * 16


def chain(steps: int, on_step: OnStep) -> None:
    """Each state refers to the one before."""
    last = None
    for _ in range(steps):
        for _ in range(EACH):
            last = Node(last)
        on_step()
    while last is not None:  # Not by recursion.
        last = last.before


def callbacks(steps: int, on_step: OnStep) -> None:
    """Functions that are registered again and again."""
    trainer = Trainer()

    def register(step: int) -> None:
        values = [step] * 10
        trainer.callbacks.append(lambda: len(values))

    for step in range(steps):
        for _ in range(EACH):
            register(step)
        on_step()


specs: list[tuple[Spec, ...]] = []


def tuples_in_module(steps: int, on_step: OnStep) -> None:
    """Tuples of specifications in a list of a module."""
    specs.clear()
    for step in range(steps):
        specs.extend((Spec((step,), ("shard",), number), Spec((), (), 0)) for number in range(EACH))
        on_step()
    specs.clear()


def lines_of_log(steps: int, on_step: OnStep) -> None:
    """Strings in a list of an object."""
    trainer = Trainer()
    for step in range(steps):
        trainer.lines.extend(f"step {step}, line {number}" * 5 for number in range(EACH))
        on_step()


def bodies_in_deque(steps: int, on_step: OnStep) -> None:
    """The bytes of each step."""
    bodies: collections.deque[bytes] = collections.deque()
    for _ in range(steps):
        bodies.append(bytes(20_000))
        on_step()


def seen_names(steps: int, on_step: OnStep) -> None:
    """A set of names that never come again."""
    trainer = Trainer()
    for step in range(steps):
        trainer.seen.update(f"sample {step} of shard {number:060}" for number in range(EACH))
        on_step()


def lists_by_step(steps: int, on_step: OnStep) -> None:
    """A list of dictionaries for each step."""
    history: dict[int, list[dict[str, Any]]] = {}
    for step in range(steps):
        history[step] = [{"at": [step], "number": number} for number in range(EACH)]
        on_step()


def records(steps: int, on_step: OnStep) -> None:
    """A handler of logging that keeps all records."""

    class Keeping(logging.Handler):
        def __init__(self) -> None:
            super().__init__()
            self.records: list[logging.LogRecord] = []

        def emit(self, record: logging.LogRecord) -> None:
            self.records.append(record)

    log = logging.getLogger("growing.records")
    log.propagate = False
    handler = Keeping()
    log.addHandler(handler)
    for step in range(steps):
        for number in range(EACH):
            log.warning("step %d, number %d", step, number)
        on_step()
    log.removeHandler(handler)


def generators(steps: int, on_step: OnStep) -> None:
    """Generators that are begun and never ended."""

    def items(step: int) -> Generator[int]:
        values = [step] * 10
        yield from values

    pending = []
    for step in range(steps):
        for _ in range(EACH):
            begun = items(step)
            next(begun)
            pending.append(begun)
        on_step()


def events_of_epochs(steps: int, on_step: OnStep) -> None:
    """Many events every 25 steps."""
    trainer = Trainer()
    for step in range(steps):
        if step % 25 == 24:
            trainer.events.extend(event(step) for _ in range(25 * EACH))
        on_step()


def waiting_threads(steps: int, on_step: OnStep) -> None:
    """A thread in every other step that waits for ever."""
    end = threading.Event()
    for step in range(steps):
        if step % 2:
            threading.Thread(target=end.wait, daemon=True).start()
        on_step()
    end.set()


def open_files(steps: int, on_step: OnStep) -> None:
    """Files that are not closed."""
    files = []
    for _ in range(steps):
        files.append(tempfile.TemporaryFile())  # noqa: SIM115
        on_step()
    for each in files:
        each.close()


# Look-alikes


def cache_with_limit(steps: int, on_step: OnStep) -> None:
    """A cache that takes long to fill."""

    @functools.lru_cache(maxsize=100_000)
    def layout(spec: Spec) -> tuple[Spec, list[int]]:
        return spec, [*spec.shape]

    for step in range(steps):
        for number in range(EACH):
            layout(Spec((number, 8, 8), ("shard",), step))
        on_step()


def bounded_deque(steps: int, on_step: OnStep) -> None:
    """A deque with ``maxlen`` that takes long to fill."""
    recent: collections.deque[Event] = collections.deque(maxlen=100_000)
    for step in range(steps):
        recent.extend(event(step) for _ in range(EACH))
        on_step()


class Replay:
    """A memory that says how much it keeps."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.events: list[Event] = []

    def add(self, event: Event) -> None:
        """Add one, and forget the oldest."""
        self.events.append(event)
        if len(self.events) > self.capacity:
            self.events.pop(0)


def replay(steps: int, on_step: OnStep) -> None:
    """A memory that takes long to fill."""
    memory = Replay(50_000)
    for step in range(steps):
        for _ in range(EACH):
            memory.add(event(step))
        on_step()


def memory_handler(steps: int, on_step: OnStep) -> None:
    """A handler of logging with a limit."""
    log = logging.getLogger("growing.memory")
    log.propagate = False
    handler = logging.handlers.MemoryHandler(100_000, flushLevel=logging.CRITICAL)
    log.addHandler(handler)
    for step in range(steps):
        for number in range(EACH):
            log.warning("step %d, number %d", step, number)
        on_step()
    log.removeHandler(handler)


def bounded_queue(steps: int, on_step: OnStep) -> None:
    """A queue that is filled faster than it is read."""
    waiting: queue.Queue[Event] = queue.Queue(maxsize=50_000)
    for step in range(steps):
        for _ in range(EACH):
            waiting.put(event(step))
        on_step()


def cleared_events(steps: int, on_step: OnStep) -> None:
    """A list that is cleared every 60 steps."""
    trainer = Trainer()
    for step in range(steps):
        if step % 60 == 59:
            trainer.events.clear()
        trainer.events.extend(event(step) for _ in range(4 * EACH))
        on_step()


def warm_cache(steps: int, on_step: OnStep) -> None:
    """Results for keys of which there are some thousands."""
    trainer = Trainer()
    chance = random.Random(0)
    for step in range(steps):
        for _ in range(10 * EACH):
            trainer.by_step.setdefault(chance.randrange(5_000), event(step))
        on_step()


def tables_of_warm_up(steps: int, on_step: OnStep) -> None:
    """What is made in the first 60 steps, and stays."""
    trainer = Trainer()
    for step in range(steps):
        if step < 60:
            trainer.events.extend(event(step) for _ in range(10 * EACH))
        on_step()


def stops(steps: int, on_step: OnStep) -> None:
    """A table that is complete after 140 steps."""
    trainer = Trainer()
    for step in range(steps):
        if step < 140:
            trainer.events.extend(event(step) for _ in range(EACH))
        on_step()


def modules_of_warm_up(steps: int, on_step: OnStep) -> None:
    """Modules with functions and classes that come one by one in the first 80 steps."""
    code = compile(
        "\n".join(f"class C{each}:\n def f(self): return {each}" for each in range(20)), "m", "exec"
    )
    names = [f"growing_module_{step}" for step in range(80)]
    for step in range(steps):
        if step < len(names):
            module = types.ModuleType(names[step])
            exec(code, module.__dict__)
            sys.modules[names[step]] = module
        on_step()
    for name in names:
        sys.modules.pop(name, None)


def interned(steps: int, on_step: OnStep) -> None:
    """Strings that the interpreter keeps while they are used, and no longer."""
    for step in range(steps):
        names = [sys.intern(f"name {step} {number}" * 10) for number in range(10 * EACH)]
        on_step()
        del names


def weak_registry(steps: int, on_step: OnStep) -> None:
    """A registry that lets go."""
    registry: weakref.WeakValueDictionary[int, Event] = weakref.WeakValueDictionary()
    recent: collections.deque[Event] = collections.deque(maxlen=500)
    for step in range(steps):
        for number in range(EACH):
            entry = event(step)
            registry[step * EACH + number] = entry
            recent.append(entry)
        on_step()


def recent_by_key(steps: int, on_step: OnStep) -> None:
    """A dictionary that loses the oldest entry when it has many."""
    entries: collections.OrderedDict[int, Event] = collections.OrderedDict()
    for number in itertools.count():
        if number == steps * EACH:
            break
        entries[number] = event(number)
        if len(entries) > 3_000:
            entries.popitem(last=False)
        if number % EACH == EACH - 1:
            on_step()


def cycles(steps: int, on_step: OnStep) -> None:
    """Cycles that a collection frees."""
    for step in range(steps):
        for _ in range(EACH):
            first = event(step)
            first.values.append(first)  # type: ignore[arg-type]
        on_step()


def longer_batches(steps: int, on_step: OnStep) -> None:
    """More and more objects in each step, none of which stays."""
    for step in range(steps):
        batch = [event(step) for _ in range(EACH * (step // 10 + 1))]
        on_step()
        del batch


def numbers_of_losses(steps: int, on_step: OnStep) -> None:
    """A number for each step, which is what a list of losses should have."""
    losses: list[float] = []
    history: list[dict[str, float]] = []
    for step in range(steps):
        losses.append(step / 7)
        history.append({"loss": step / 7, "step": step})
        on_step()


def lines_of_epoch(steps: int, on_step: OnStep) -> None:
    """Strings that are written out every 50 steps."""
    trainer = Trainer()
    for step in range(steps):
        trainer.lines.extend(f"step {step}, line {number}" * 20 for number in range(4 * EACH))
        if step % 50 == 49:
            trainer.lines.clear()
        on_step()


def vocabulary(steps: int, on_step: OnStep) -> None:
    """A set of words, of which ever fewer are new."""
    trainer = Trainer()
    chance = random.Random(0)
    for _ in range(steps):
        words = (int(chance.paretovariate(1)) % 30_000 for _ in range(20 * EACH))
        trainer.seen.update(f"word {word:080}" for word in words)
        on_step()


def pool_of_threads(steps: int, on_step: OnStep) -> None:
    """Threads up to a number."""
    end = threading.Event()
    for step in range(steps):
        if step % 3 == 0 and step < 150:
            threading.Thread(target=end.wait, daemon=True).start()
        on_step()
    end.set()


def entered_weakly_too(steps: int, on_step: OnStep) -> None:
    """Only the list grows by itself: the others let go of an entry when its object dies."""
    listed: list[Event] = []
    seen: weakref.WeakSet[Holder] = weakref.WeakSet()
    by_number: weakref.WeakValueDictionary[int, Holder] = weakref.WeakValueDictionary()
    numbers: weakref.WeakKeyDictionary[Holder, int] = weakref.WeakKeyDictionary()
    holders = []
    for step in range(steps):
        for number in range(EACH):
            holders.append(Holder(step))
            seen.add(holders[-1])
            by_number[step * EACH + number] = holders[-1]
            numbers[holders[-1]] = number
            weakref.finalize(holders[-1], functools.partial(listed.append, event(step)))
        on_step()


def finalizers_of_themselves(steps: int, on_step: OnStep) -> None:
    """A finalizer that is to call a method of the object that it waits for."""
    for step in range(steps):
        for _ in range(EACH):
            holder = Holder(step)
            weakref.finalize(holder, holder.close)
        on_step()


def finalizers_of_one(steps: int, on_step: OnStep) -> None:
    """More and more finalizers wait for an object that stays."""
    model = Holder(0)
    for step in range(steps):
        for _ in range(EACH):
            weakref.finalize(model, len, Holder(step).step)
        on_step()


def dead_references(steps: int, on_step: OnStep) -> None:
    """In a list, which lets go of none, in a weak container."""
    model = Holder(0)
    subscribers: weakref.WeakKeyDictionary[Holder, list[Any]] = weakref.WeakKeyDictionary()
    subscribers[model] = []
    for step in range(steps):
        subscribers[model].extend(weakref.ref(Holder(step)) for _ in range(10 * EACH))
        on_step()


def facts_of_each(steps: int, on_step: OnStep) -> None:
    """What is known of each object goes with it, and the list keeps it."""
    facts: weakref.WeakKeyDictionary[Holder, Event] = weakref.WeakKeyDictionary()
    listed = []
    for step in range(steps):
        for _ in range(EACH):
            listed.append(Holder(step))
            facts[listed[-1]] = event(step)
        on_step()


LEAKS: dict[Program, tuple[str, str, str]] = {
    cached_layouts: ("cache-without-limit", "layout", "Spec"),
    events_in_list: ("objects-accumulate", ".events", "Event"),
    requests_in_registry: ("objects-accumulate", ".registry", "Request"),
    chain: ("objects-accumulate", "`last`", "Node"),
    callbacks: ("objects-accumulate", ".callbacks", "function"),
    tuples_in_module: ("objects-accumulate", "`specs`", "tuple"),
    lines_of_log: ("objects-accumulate", ".lines", "str"),
    bodies_in_deque: ("objects-accumulate", "`bodies`", "bytes"),
    seen_names: ("objects-accumulate", ".seen", "str"),
    lists_by_step: ("objects-accumulate", "`history`", ""),
    records: ("objects-accumulate", ".records", "LogRecord"),
    generators: ("objects-accumulate", "`pending`", "generator"),
    events_of_epochs: ("objects-accumulate", ".events", "Event"),
    entered_weakly_too: ("objects-accumulate", "`holders`", "Holder"),
    finalizers_of_one: ("objects-accumulate", "weakref.finalize", ""),
    dead_references: ("objects-accumulate", "`subscribers`", "ReferenceType"),
    facts_of_each: ("objects-accumulate", "`listed`", "Holder"),
    finalizers_of_themselves: ("objects-accumulate", "weakref.finalize", "Holder"),
    waiting_threads: ("threads-grow", "the process", ""),
    open_files: ("files-grow", "the process", ""),
}
"""The pattern, words of the owner, and of the type that must be told first."""

# Objects are smaller from Python 3.12 on.
STEPS = {"events_of_epochs": 700} | dict.fromkeys(
    ["events_in_list", "lines_of_log", "seen_names"], 400
)
"""Programs that are told after more than 300 steps."""

LOOK_ALIKES: list[Program] = [
    cache_with_limit,
    bounded_deque,
    replay,
    memory_handler,
    bounded_queue,
    cleared_events,
    warm_cache,
    tables_of_warm_up,
    stops,
    modules_of_warm_up,
    interned,
    weak_registry,
    recent_by_key,
    cycles,
    longer_batches,
    numbers_of_losses,
    lines_of_epoch,
    vocabulary,
    pool_of_threads,
]
