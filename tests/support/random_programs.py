"""Programs of random object graphs, with a slow and obvious account of what is garbage in them.

``check_report``, ``check_aftermath`` and ``check_watched`` compare it with what cyclescope says.
"""

from __future__ import annotations

import gc
import string
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy
import pytest

import cyclescope

Reference = tuple[int, str, int]
"""Owner, name, target."""


Place = tuple[str, int]
"""``"object"`` and its number, or ``"cells"`` and the closure whose variables they are."""


class Node:
    pass


class Slotted:
    __slots__ = ("__dict__", "__weakref__", "first")


@dataclass(frozen=True)
class Program:
    """Objects, references, arrays, and what a variable of the program still refers to."""

    kinds: list[str]
    references: list[Reference]
    arrays: list[int]
    """The owner of each array; the array number ``i`` has ``i + 1`` elements of 8 bytes."""
    roots: set[int]


def program_of(random: Random) -> Program:
    count = random.randint(1, random.choice([8, 24, 24, 60]))
    kinds = random.choices(["Node", "Slotted", "list", "dict", "tuple", "closure"], k=count)
    ends = [
        (random.randrange(count), random.randrange(count))
        for _ in range(random.randint(count // 2, 2 * count))
    ]
    # No digits: two keys that differ in digits alone are one name to a signature.
    references = [
        # A tuple cannot refer to what is made after it.
        (owner, letters(number), target)
        for number, (owner, target) in enumerate(ends)
        if kinds[owner] != "tuple" or target < owner
    ]
    owners = [i for i in range(count) if kinds[i] != "tuple"]
    arrays = [random.choice(owners) for _ in range(random.randint(1, 4)) if owners]
    roots = {random.randrange(count) for _ in range(random.choice([0, 0, 1, 2]))}
    return Program(kinds, references, arrays, roots)


def letters(number: int) -> str:
    high, low = divmod(number, 26)
    return "x" + string.ascii_lowercase[high] + string.ascii_lowercase[low]


def build(
    program: Program,
    note: Callable[[int, Any], object] | None = None,
    note_array: Callable[[int, Any], object] = lambda number, array: None,
    without: set[str] = frozenset(),  # type: ignore[assignment]
) -> list[Any]:
    """Makes the program's objects, notes each that can be noted, and returns its roots.

    In the end, it removes the references of some names.
    """
    made: list[Any] = []
    cells: dict[int, dict[str, Any]] = {}
    for i, kind in enumerate(program.kinds):
        mine = [(name, target) for owner, name, target in program.references if owner == i]
        if kind == "tuple":
            made.append(tuple(made[target] for _, target in mine))
        elif kind == "closure":
            made.append(closure(cells.setdefault(i, {})))
        else:
            made.append({"Node": Node, "Slotted": Slotted, "list": list, "dict": dict}[kind]())
        if note is not None and kind in ("Node", "Slotted", "closure"):
            note(i, made[i])
    for owner, name, target in program.references:
        attach(program.kinds[owner], made[owner], cells.get(owner), name, made[target])
    for number, owner in enumerate(program.arrays):
        array = numpy.zeros(number + 1)
        note_array(number, array)
        attach(
            program.kinds[owner], made[owner], cells.get(owner), "array" + letters(number), array
        )
    for owner, name, _ in program.references:
        if name in without:
            match program.kinds[owner]:
                case "dict":
                    del made[owner][name]
                case "closure":
                    del cells[owner][name]
                case _:
                    delattr(made[owner], name)
    return [made[i] for i in program.roots]


def closure(held: dict[str, Any]) -> Any:
    return lambda: held


def attach(kind: str, owner: Any, cells: dict[str, Any] | None, name: str, target: Any) -> None:
    match kind:
        case "tuple":
            pass
        case "list":
            owner.append(target)
        case "dict":
            owner[name] = target
        case "closure":
            assert cells is not None
            cells[name] = target
        case _:
            setattr(owner, name, target)


def reachable(starts: set[int], references: list[Reference]) -> set[int]:
    found = set(starts)
    while True:
        more = {target for owner, _, target in references if owner in found} - found
        if not more:
            return found
        found |= more


def on_cycles(references: list[Reference], among: set[int]) -> set[int]:
    """The objects that reach themselves again."""
    inside = [r for r in references if r[0] in among and r[2] in among]
    return {i for i in among if i in reachable({t for owner, _, t in inside if owner == i}, inside)}


def garbage(program: Program) -> set[int]:
    """What reference counts alone do not free: behind a cycle that no root leads to."""
    dead = set(range(len(program.kinds))) - reachable(program.roots, program.references)
    return reachable(on_cycles(program.references, dead), program.references) & dead


def step(program: Program, at: Place, edge: str) -> Place | None:
    """Where a reference leads, as the report writes it: ``.name``, ``['name']``, ``[3]``."""
    inside, node = at
    kind = program.kinds[node]
    mine = [r for r in program.references if r[0] == node]
    if edge == "closure variable 'held'":
        return ("cells", node) if kind == "closure" and inside == "object" else None
    if kind in ("list", "tuple"):
        index = edge[1:-1]
        if not (edge.startswith("[") and index.isdigit() and int(index) < len(mine)):
            return None
        return ("object", mine[int(index)][2])
    keyed = kind == "dict" or inside == "cells"
    for _, name, target in mine:
        if edge == (f"['{name}']" if keyed else f".{name}"):
            return ("object", target)
    return None


def is_cycle(program: Program, edges: list[str], lost: set[int]) -> bool:
    """True if the references, followed from some lost object, lead back to it."""
    starts: list[Place] = [(inside, node) for node in lost for inside in ("object", "cells")]
    for start in starts:
        at: Place | None = start
        for edge in edges:
            at = None if at is None else step(program, at, edge)
        if at == start:
            return True
    return False


def is_free(program: Program, cuts: set[str], lost: set[int]) -> bool:
    """True if no cycle holds an array once these references are removed."""
    left = [r for r in program.references if r[1] not in cuts]
    return not set(program.arrays) & lost & reachable(on_cycles(left, lost), left)


def check_cuts(program: Program, report: cyclescope.CycleReport, lost: set[int]) -> None:
    """The cuts of all leaks free every array, and none of them is needless.

    Only where each reference has a name of its own; of others, which is meant is not known.
    """
    cuts = [cut for leak in report.leaks for cut in leak.cuts]
    # Each of these cycles has a reference of the program's, so nobody is told to drop an array.
    assert not any("array" in cut.edge for cut in cuts), cuts
    names = [cut.edge.strip(".[]'") for cut in cuts]
    if not all(cut.proven for cut in cuts) or not set(names) <= {r[1] for r in program.references}:
        return
    assert is_free(program, set(names), lost), names
    assert freed_by(program, set(names), lost)
    for name in names:
        assert names.count(name) == 1
        assert not is_free(program, set(names) - {name}, lost), (name, names)
        assert not freed_by(program, set(names) - {name}, lost), (name, names)


def freed_by(program: Program, cuts: set[str], lost: set[int]) -> bool:
    """True if each array of the garbage goes by itself once these references are removed."""
    arrays: dict[int, weakref.ref[Any]] = {}

    def note(number: int, array: Any) -> None:
        arrays[number] = weakref.ref(array)

    alive = build(program, note_array=note, without=cuts)
    mine = [number for number, owner in enumerate(program.arrays) if owner in lost]
    gone = all(arrays[number]() is None for number in mine)
    del alive
    gc.collect()
    return gone


def check_report(program: Program) -> None:
    """Bytes, cycles, cuts and what leaks have in common are as the account has them."""
    alive = build(program)
    report = cyclescope.find_tensor_cycles(devices="any", frozen=False)

    lost = garbage(program)
    expected = {8 * (i + 1) for i, owner in enumerate(program.arrays) if owner in lost}
    assert report.bytes_held == sum(expected)
    held = {leak.signature: {buffer.bytes for buffer in leak.buffers} for leak in report.leaks}
    assert set().union(*held.values()) == expected
    for leak in report.leaks:
        edges = [step.edge for step in leak.cycle]
        assert is_cycle(program, edges, lost), leak
        assert leak.bytes_held == sum(held[leak.signature])
        shared = {
            signature
            for signature, buffers in held.items()
            if signature != leak.signature and buffers & held[leak.signature]
        }
        assert set(leak.also_held_by) == shared
    check_cuts(program, report, lost)
    assert not cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    del alive
    gc.collect()


def aftermath(program: Program, collect: Callable[[], object]) -> tuple[list[int], dict[int, int]]:
    """Which objects a collection takes, and the reference counts of those that it leaves."""
    gone: list[int] = []
    references: dict[int, weakref.ref[Any]] = {}

    def note(number: int, made: Any) -> None:
        references[number] = weakref.ref(made, lambda _: gone.append(number))

    alive = build(program, note)
    collect()
    counts = {
        number: sys.getrefcount(reference())
        for number, reference in references.items()
        if number not in gone
    }
    del alive
    gc.collect()
    return sorted(gone[: len(references) - len(counts)]), counts


def watched() -> None:
    with cyclescope.observe_tensor_cycles(lambda report: None, devices="any"):
        gc.collect()


def check_aftermath(program: Program) -> None:
    """Nothing is kept alive, nothing freed too early, and no reference is too many or too few."""
    expected = aftermath(program, gc.collect)
    assert (
        aftermath(program, lambda: cyclescope.find_tensor_cycles(devices="any", frozen=False))
        == expected
    )
    assert aftermath(program, watched) == expected
    assert gc.garbage == []


Watched = Callable[[Program, int], None]


@pytest.fixture
def check_watched() -> Iterator[Watched]:
    """A check of what a watch sees of garbage that has come to a generation."""
    reports: list[cyclescope.CycleReport] = []

    def check(program: Program, generation: int) -> None:
        gone: set[int] = set()
        references: dict[int, weakref.ref[Any]] = {}

        def note(number: int, made: Any) -> None:
            references[number] = weakref.ref(made, lambda _: gone.add(number))

        alive = build(program, note)
        lost = garbage(program)
        left = {number for number, reference in references.items() if reference() is not None}
        gc.collect(generation)
        watch.flush()
        expected = [8 * (i + 1) for i, owner in enumerate(program.arrays) if owner in lost]
        assert sum(report.bytes_held for report in reports) == sum(expected)
        assert left & gone == left & lost
        assert (gc.garbage, gc.get_debug()) == ([], 0)
        reports.clear()
        del alive
        gc.collect()
        watch.flush()
        reports.clear()

    with cyclescope.observe_tensor_cycles(reports.append, devices="any") as watch:
        yield check
