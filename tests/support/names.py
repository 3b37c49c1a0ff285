"""What the tests of names share: a little program that makes a cycle, and what must be said of it.

Each case is such a program, with one kind of reference in its cycle, which holds an array. Its
decorator says what the report must be: every step of the cycle with type, reference, label and
place, and the references from the cycle to the array.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import common
import cyclescope

torch: Any = vars(common)["torch"]

BYTES = 2**20


class Step(NamedTuple):
    type_name: str
    edge: str
    label: str
    place: str | None
    """File name and line."""


@dataclass(frozen=True)
class Case:
    program: Callable[[], object]
    cycle: list[Step]
    path: list[str]
    edges: set[tuple[str, str]]
    needs_torch: bool


class Cases(list[Case]):
    """The cases of one module, in which ``~`` stands for the module's name.

    A line of the module is named by the comment ``# at: mark`` at its end.
    """

    def __init__(self, module: str, file: str) -> None:
        super().__init__()
        self.module = module
        self.file = Path(file).name
        self.source = Path(file).read_text(encoding="utf-8").splitlines()
        self.used: set[str] = set()

    def marks(self) -> list[str]:
        """Every mark of the module, in the order of the alphabet."""
        return sorted(m[1] for text in self.source if (m := re.search(r"# at: (.+)$", text)))

    def line(self, mark: str) -> int:
        """The one line that ends in the comment ``# at: mark``."""
        self.used.add(mark)
        (number,) = (i for i, text in enumerate(self.source, 1) if text.endswith(f"# at: {mark}"))
        return number

    def step(
        self,
        type_name: str,
        edge: str,
        *,
        label: str | None = None,
        at: str | None = None,
        after: int = 0,
    ) -> Step:
        """A step as it must be reported; ``after`` counts lines from the one that ``at`` marks."""
        type_name = type_name.replace("~", self.module)
        label = type_name if label is None else label.replace("~", self.module)
        place = None if at is None else f"{self.file}:{self.line(at) + after}"
        return Step(type_name, edge, label, place)

    def case(
        self,
        *cycle: Step,
        path: Iterable[str] = (".data",),
        edges: Iterable[tuple[str, str]] = (),
        needs_torch: bool = False,
        since: tuple[int, int] = (3, 10),
    ) -> Callable[[Callable[[], object]], Callable[[], object]]:
        """Register a program and what must be reported of it.

        Args:
            cycle: The steps; the report may begin at any.
            path: The references from a step of the cycle to the array.
            edges: Further references that the drawing must have, and the labels of what they
                refer to.
            needs_torch: The program is about PyTorch.
            since: The version of Python that first has what the program is about.
        """

        def register(program: Callable[[], object]) -> Callable[[], object]:
            if sys.version_info >= since:
                named = {(name, label.replace("~", self.module)) for name, label in edges}
                self.append(Case(program, list(cycle), list(path), named, needs_torch))
            return program

        return register

    def tests(self) -> tuple[Callable[[Case], None], Callable[[], None]]:
        """The tests of the module: each case, and that no mark is left over."""

        @pytest.mark.parametrize("case", self, ids=name_of)
        def test_names(case: Case) -> None:
            check(case)

        def test_every_mark_is_used() -> None:
            assert sorted(self.used) == self.marks()

        return test_names, test_every_mark_is_used


def name_of(case: Case) -> str:
    return case.program.__name__


def turns(leak: cyclescope.Leak) -> list[list[Step]]:
    """The steps of the cycle, begun at each."""
    steps = [
        Step(s.type_name, s.edge, s.label, s.location and Path(s.location).name) for s in leak.cycle
    ]
    return [steps[i:] + steps[:i] for i in range(len(steps))]


def check(case: Case) -> None:
    """Run the program and compare what is reported with what must be."""
    if case.needs_torch and torch is None:
        pytest.skip("is about PyTorch, which is not installed")
    with common.collector_paused():
        case.program()
        report = cyclescope.find_tensor_cycles(devices="any", frozen=False)
    leaks = [leak for leak in report.leaks if case.cycle in turns(leak)]
    assert leaks, "\n".join(map(str, report.leaks))
    (leak,) = leaks
    (buffer,) = leak.buffers
    assert buffer.bytes == BYTES, buffer.bytes
    assert buffer.path == case.path, buffer.path
    assert leak.bytes_held == BYTES, leak.bytes_held
    graph = json.loads(report.to_json())["leaks"][0]["graph"]
    edges = {(edge["name"], graph["nodes"][edge["to"]]["label"]) for edge in graph["edges"]}
    assert edges >= case.edges, edges


def array() -> Any:
    return common.tensor("cpu", 1)


class Node:
    """Attributes as most objects have them: inline values from 3.11 on."""

    def __init__(self) -> None:  # at: Node
        self.data: Any = array()


HERE = Cases(__name__, __file__)


def node(edge: str) -> Step:
    return HERE.step("~.Node", edge, at="Node")
