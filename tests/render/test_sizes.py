"""The boxes of a drawing hold together what the leak holds: no byte twice, and none missing."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy
import pytest

import cyclescope

pytestmark = pytest.mark.usefixtures("collector_paused")

MIB = 2**20


class Part:
    """An object of a leak."""

    def __init__(self) -> None:
        self.me: object = self


def array() -> Any:
    return numpy.zeros(MIB, numpy.uint8)


def of_names() -> None:
    """Each array is the attribute of another name."""
    part = Part()
    for number in range(11):
        setattr(part, f"array_{number}", array())


def behind_a_chain() -> None:
    part = owner = Part()
    for _ in range(14):
        owner.deeper = owner = Part.__new__(Part)  # type: ignore[attr-defined]
    for number in range(10):
        setattr(owner, f"array_{number}", array())
    part.own = array()  # type: ignore[attr-defined]


def of_children() -> None:
    part = Part()
    part.children = [Part.__new__(Part) for _ in range(40)]  # type: ignore[attr-defined]
    for child in part.children:  # type: ignore[attr-defined]
        child.parent, child.array = part, array()


def in_a_list() -> None:
    Part().arrays = [array() for _ in range(300)]  # type: ignore[attr-defined]


def anywhere(seed: int) -> None:
    """A random graph whose objects hold arrays by names, lists and dicts."""
    chance = random.Random(seed)
    parts = [Part() for _ in range(chance.randint(2, 60))]
    for number, part in enumerate(parts):
        part.me = parts[(number + 1) % len(parts)]
        for name in chance.sample("abcd", chance.randint(0, 3)):
            setattr(part, name, chance.choice(parts))
        kind = chance.randrange(4)
        if kind == 0:
            setattr(part, f"array_{chance.randrange(3)}", array())
        elif kind == 1:
            part.arrays = [array() for _ in range(chance.randint(1, 9))]  # type: ignore[attr-defined]
        elif kind == 2:
            part.by_name = {f"name {each}": array() for each in range(chance.randint(1, 4))}  # type: ignore[attr-defined]


def total(svg: str) -> float:
    """The sizes of all boxes, in MiB: ``4.0 MiB``, or ``6 × 4.0 MiB = 24.0 MiB``."""
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    sizes = (re.fullmatch(r"(?:.* = )?([\d.]+) (KiB|MiB)", text) for text in texts)
    return sum(float(size[1]) * (1 if size[2] == "MiB" else 1 / 1024) for size in sizes if size)


@pytest.mark.parametrize("make", [of_names, behind_a_chain, of_children, in_a_list])
def test_a_drawing_has_each_byte_once(make: Any) -> None:
    make()
    check()


@pytest.mark.parametrize("seed", range(40))
def test_so_has_one_of_any_shape(seed: int) -> None:
    anywhere(seed)
    check()


def check() -> None:
    for leak in cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks:
        assert total(leak.to_svg()) == pytest.approx(leak.bytes_held / MIB), leak.to_svg()
