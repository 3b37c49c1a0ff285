"""A judge that does what a report says: removes the references that it names, and looks what goes.

A leak is made anew for each trial, the owners of the references are found in the heap by their
names, and the references are removed with the collector off. All together must free every buffer,
and no fewer.
"""

from __future__ import annotations

import gc
import itertools
import re
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import cyclescope
from support import heap_by_name
from support.trial import small_heap

Reference = tuple[str, str]
"""Owner and name, as a report writes them."""

TRIALS = 60
"""Of the ways in which the objects meant could be chosen, so many are tried."""


@dataclass
class Subject:
    """What is judged: ``leak()`` leaks, ``held()`` is how many of its buffers are still there."""

    leak: Callable[[], object]
    held: Callable[[], int]


@dataclass
class Buffers:
    """Buffers under watch."""

    made: list[weakref.ref[Any]] = field(default_factory=list)

    def note(self, buffer: Any) -> Any:
        """Watches a tensor's storage, or an array; returns it."""
        storage = buffer.untyped_storage() if hasattr(buffer, "untyped_storage") else buffer
        self.made.append(weakref.ref(storage))
        return buffer

    def held(self) -> int:
        return sum(one() is not None for one in self.made)


def faults(subject: Subject, report: cyclescope.CycleReport) -> Iterator[str]:
    """What is wrong with the cuts of a report on one call of ``leak``, a sentence each."""
    cuts = [cut for leak in report.leaks for cut in leak.cuts]
    if not all(cut.proven for cut in cuts):
        return
    meant = Counter((cut.owner, cut.edge) for cut in cuts)
    yield from not_in_text(report)
    with small_heap():
        if not any(held == 0 for held in trials(subject, meant)):
            yield f"the buffers stay when {dict(meant)} is cut"
        for needless in meant:
            fewer = meant - Counter([needless])
            if any(held == 0 for held in trials(subject, fewer)):
                yield f"{needless} is not needed among {dict(meant)}"
        yield from several(subject, meant)


def trials(subject: Subject, meant: Counter[Reference]) -> Iterator[int]:
    """How many buffers stay, for each choice of objects that have these references."""
    for number in range(TRIALS):
        subject.leak()
        owners = {one: owners_of(one) for one in meant}
        ways = [itertools.combinations(range(len(owners[one])), meant[one]) for one in meant]
        choice = next(itertools.islice(itertools.product(*ways), number, None), None)
        if choice is not None:
            for one, numbers in zip(meant, choice, strict=True):
                for index in numbers:
                    heap_by_name.sever(owners[one][index], one[1])
        owners.clear()
        held = subject.held()
        gc.collect()
        if choice is None:
            return
        yield held


def several(subject: Subject, meant: Counter[Reference]) -> Iterator[str]:
    """With the leak there three times, the references are removed of every object that has them."""
    leak = [subject.leak() for _ in range(3)]
    del leak
    for one in meant:
        for owner in owners_of(one):
            heap_by_name.sever(owner, one[1])
        owner = None
    if held := subject.held():
        yield f"of three leaks {held} buffers stay when {dict(meant)} is cut everywhere"
    gc.collect()


def owners_of(reference: Reference) -> list[Any]:
    owner, edge = reference
    return [
        thing
        for thing in gc.get_objects()
        if heap_by_name.is_named(thing, owner)
        and heap_by_name.refers(thing, edge)
        and (edge[0] != "." or hasattr(thing, edge[1:].partition("[")[0]))
    ]


QUOTED = re.compile(r"`([^`]*)`")
NAME = re.compile(r"[^\W\d]\w*")


def not_in_text(report: cyclescope.CycleReport) -> Iterator[str]:
    """References that are marked and that the advice does not name."""
    for leak in report.leaks:
        if leak.pattern in LIBRARIES_OWN:
            continue
        quoted = " ".join(QUOTED.findall(leak.advice)) if leak.pattern else leak.advice
        words = set(NAME.findall(quoted))
        for cut in leak.cuts:
            name = name_of(cut.edge)
            if name and name not in words and f"`{cut.edge}`" not in leak.advice:
                yield f"{cut.edge} of {cut.owner} is marked, and the advice is: {leak.advice}"


LIBRARIES_OWN = {"mock-keeps-arguments", "parametrized-module", "traced-graph-module"}
"""Patterns of cycles of which the program made no reference."""


def name_of(edge: str) -> str | None:
    """The attribute or variable of a reference; None for items, which some hooks have by number."""
    if edge.startswith("."):
        return str(NAME.findall(edge)[0])
    _, quote, name = edge.partition(" '")
    return name.removesuffix("'") if quote else None


# What may stand in backquotes without being a name of the program.
KNOWN = """
    weakref ref proxy WeakMethod __weakref__ __slots__ functools partial lru_cache sys
    exc_info traceback format_exc error with_traceback None close aclose await clear exec
    register_hook remove handle ctx save_for_backward saved_tensors grad_fn forward del
    shutdown DataLoader Tensor Thread Timer ThreadPoolExecutor _lru_cache_wrapper
    finally __cause__ __context__ __traceback__ gc collect torch nn utils parametrize
    remove_parametrizations LambdaLR SGD lr_lambdas register_load_state_dict_pre_hook
    __mro__ __dict__ __getattr__ __setattr__ keywords args exceptions lambda parameters state_dict
    weakref_slot True with async unittest mock reset_mock return_value side_effect
"""


def unknown_names(advice: str, names: set[str]) -> Iterator[str]:
    """Names in backquotes that the program does not have."""
    for quoted in QUOTED.findall(advice):
        if quoted.split(".")[-1].startswith("_") and quoted.endswith("_hooks"):
            continue
        for name in NAME.findall(quoted):
            if name not in names and name not in KNOWN.split():
                yield f"nothing in the program is called {name}: {advice}"
