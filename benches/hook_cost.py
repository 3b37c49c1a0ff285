"""What a watch costs at each collection, beside other ways to watch collections.

All variants are measured in one process, in turns, on the same heap of a million objects; so the
ratios hold although the machine's speed may change meanwhile. Compare within a run only.

The median is what most collections cost; "× bare" is the median over the rounds of the ratio within
each. The mean is what all of them cost together.
"""

from __future__ import annotations

import gc
import operator
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import cyclescope
import measure

HEAP = 1_000_000


class Node:
    """An ordinary instance: attributes, one of which closes a cycle."""

    def __init__(self) -> None:
        self.name = "node"
        self.other: Node | None = None


def no_garbage() -> None:
    pass


def pairs_of_instances(count: int) -> Callable[[], None]:
    def make() -> None:
        for _ in range(count // 2):
            one, other = Node(), Node()
            one.other, other.other = other, one

    return make


def pairs_of_lists(count: int) -> Callable[[], None]:
    def make() -> None:
        for _ in range(count // 2):
            one: list[object] = []
            one.append([one])

    return make


class Owner:
    """An instance that keeps a closure which captures it: the leak that programs have most."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.parts = [size]
        self.callback = lambda: self.size


def owners_of_closures(count: int) -> Callable[[], None]:
    """Instance, list, function, its tuple of cells, cell: five objects each."""

    def make() -> None:
        for size in range(count // 5):
            Owner(size)

    return make


def amid_survivors(make_garbage: Callable[[int], Callable[[], None]]) -> Callable[[], None]:
    """As collections come by themselves: of as many new objects as set one off, 200 are garbage."""
    new_objects, make = gc.get_threshold()[0], make_garbage(200)
    survivors: list[list[int]] = []

    def make_both() -> None:
        survivors[:] = [[i] for i in range(new_objects - 200)]
        make()

    return make_both


@dataclass(frozen=True)
class Scenario:
    """A kind of collection."""

    name: str
    generation: int
    make_garbage: Callable[[], None]
    rounds: int
    collections: int
    """In each round, of each variant."""
    meets_aim: Callable[[Figures, Figures], bool]
    """Whether cyclescope's cost beside the bare one is what it should be."""
    aim: str


@dataclass
class Figures:
    """The durations of one scenario's collections under one variant, in nanoseconds, by round."""

    rounds: list[list[int]] = field(default_factory=list)

    @property
    def durations(self) -> list[int]:
        return [duration for durations in self.rounds for duration in durations]

    @property
    def median(self) -> float:
        return statistics.median(self.durations)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.durations)

    @property
    def quartiles(self) -> tuple[float, float]:
        low, _, high = statistics.quantiles(self.durations, n=4)
        return (low, high)

    def beside(self, bare: Figures) -> float:
        """How many times the bare duration: the median over the rounds, each compared in itself."""
        return statistics.median(
            statistics.median(ours) / statistics.median(theirs)
            for ours, theirs in zip(self.rounds, bare.rounds, strict=False)
        )


SCENARIOS = [
    Scenario(
        "empty young collection",
        0,
        no_garbage,
        16,
        4096,
        lambda ours, bare: ours.median <= bare.median + 1000,
        "at most 1 µs over bare",
    ),
    Scenario(
        "young collection, 200 objects of captured owners are garbage",
        0,
        owners_of_closures(200),
        16,
        256,
        lambda ours, bare: ours.beside(bare) <= 1.3,
        "at most 1.3 × bare",
    ),
    Scenario(
        "young collection, 200 instances are garbage",
        0,
        pairs_of_instances(200),
        16,
        256,
        lambda ours, bare: ours.beside(bare) <= 1.3,
        "at most 1.3 × bare",
    ),
    Scenario(
        "young collection, 200 lists are garbage",
        0,
        pairs_of_lists(200),
        16,
        256,
        lambda ours, bare: ours.beside(bare) <= 1.3,
        "at most 1.3 × bare",
    ),
    Scenario(
        "automatic young collection, 200 objects of captured owners are garbage among others",
        0,
        amid_survivors(owners_of_closures),
        16,
        256,
        lambda ours, bare: ours.beside(bare) <= 1.3,
        "at most 1.3 × bare",
    ),
    Scenario(
        "automatic young collection, 200 instances are garbage among others",
        0,
        amid_survivors(pairs_of_instances),
        16,
        256,
        lambda ours, bare: ours.beside(bare) <= 1.3,
        "at most 1.3 × bare",
    ),
    Scenario(
        "automatic young collection, 200 lists are garbage among others",
        0,
        amid_survivors(pairs_of_lists),
        16,
        256,
        lambda ours, bare: ours.beside(bare) <= 1.3,
        "at most 1.3 × bare",
    ),
    Scenario(
        "full collection, 20,000 instances are garbage",
        2,
        pairs_of_instances(20_000),
        16,
        4,
        lambda ours, bare: ours.beside(bare) <= 1.05,
        "at most 1.05 × bare",
    ),
]


@contextmanager
def bare() -> Iterator[None]:
    yield


@contextmanager
def callback(function: Callable[[str, dict[str, int]], object]) -> Iterator[None]:
    gc.callbacks.append(function)
    try:
        yield
    finally:
        gc.callbacks.remove(function)


def python_callback() -> AbstractContextManager[None]:
    def nothing(phase: str, info: dict[str, int]) -> None:
        pass

    return callback(nothing)


def c_callback() -> AbstractContextManager[None]:
    """The cheapest that a callback can be: a C function that compares two addresses."""
    return callback(operator.is_)


@contextmanager
def watch() -> Iterator[None]:
    with cyclescope.observe_tensor_cycles(lambda report: None, devices="any"):
        yield


@contextmanager
def pytorch() -> Iterator[None]:
    from torch.utils.viz._cycles import observe_garbage

    remove = observe_garbage(lambda garbage: None)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        remove()
        sys.setprofile(None)
        gc.set_debug(0)


BARE, WATCH, PYTORCH = "bare", "cyclescope", "torch.utils.viz._cycles"
VARIANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    BARE: bare,
    "C callback that does nothing": c_callback,
    "Python callback that does nothing": python_callback,
    WATCH: watch,
    PYTORCH: pytorch,
}


def collect(scenario: Scenario, count: int) -> list[int]:
    """How long each of ``count`` collections takes."""
    clock, collector = time.perf_counter_ns, gc.collect
    generation, make_garbage = scenario.generation, scenario.make_garbage
    durations = [0] * count
    for i in range(count):
        make_garbage()
        start = clock()
        collector(generation)
        durations[i] = clock() - start
    return durations


def run(scenario: Scenario, variants: list[str]) -> dict[str, Figures]:
    """Measures the variants in turns."""
    figures = {name: Figures() for name in variants}
    for turn in range(scenario.rounds):
        # Each variant comes first as often as any other.
        offset = turn % len(variants)
        for name in variants[offset:] + variants[:offset]:
            count = scenario.collections
            if name == PYTORCH:
                # It runs two full collections after each, and needs no looking at twice.
                count = min(count, 1) if turn < 5 else 0
            gc.collect()
            with VARIANTS[name]():
                if name != PYTORCH:
                    collect(scenario, 2)
                if count:
                    figures[name].rounds.append(collect(scenario, count))
    return figures


def main() -> None:
    parser = measure.arguments(__doc__ or "")
    parser.add_argument("--only", help="scenarios whose name contains this")
    parser.add_argument("--without-pytorch", action="store_true", help="leave its detector out")
    args = parser.parse_args()
    try:
        import torch  # noqa: F401
    except ImportError:
        sys.exit("the benchmark compares with PyTorch's detector: pip install torch")

    gc.disable()
    heap = [[i] for i in range(HEAP)]
    gc.collect()
    variants = [name for name in VARIANTS if not (args.without_pytorch and name == PYTORCH)]
    lines = []
    for scenario in SCENARIOS:
        if args.only and args.only not in scenario.name:
            continue
        figures = run(scenario, variants)
        lines += [f"**{scenario.name}**, {HEAP:,} objects in the heap", ""]
        lines += measure.table(*rows(figures))
        met = scenario.meets_aim(figures[WATCH], figures[BARE])
        lines += ["", f"Aim: {scenario.aim}. {'Met.' if met else 'Not met.'}", ""]
    del heap
    measure.publish("What a watch costs at each collection", lines[:-1], record=args.record)


def rows(figures: dict[str, Figures]) -> tuple[list[str], list[list[str]]]:
    base = figures[BARE]
    head = ["variant", "median", "quartiles", "over bare", "× bare", "mean", "mean × bare"]
    body = []
    for name, these in figures.items():
        low, high = these.quartiles
        body.append(
            [
                name,
                measure.duration(these.median),
                f"{measure.duration(low)} to {measure.duration(high)}",
                measure.duration(these.median - base.median),
                f"{these.beside(base):.2f}",
                measure.duration(these.mean),
                f"{these.mean / base.mean:.2f}",
            ]
        )
    return head, body


if __name__ == "__main__":
    main()
