"""What a weak cache holds goes with the garbage that is its key: checks see that as a watch does.

``TEST_CASES`` says how many random programs are tried (default: 100).
"""

from __future__ import annotations

import gc
import os
import weakref
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import numpy
import pytest

import cyclescope
from cyclescope import _native

CASES = int(os.environ.get("TEST_CASES", "100"))
SIZE = 1000

pytestmark = pytest.mark.usefixtures("collector_paused")


class Owner:
    """In a cycle of its own. Each derived class gives a leak of its own."""

    def __init__(self) -> None:
        self.itself = self
        self.arrays: list[Any] = []


class First(Owner): ...


class Second(Owner): ...


class Third(Owner): ...


OWNERS = (First, Second, Third)

values: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
references: list[Any] = []
alive: list[Any] = []


def as_value(key: Owner, array: Any) -> None:
    values.setdefault(key, []).append(array)


def as_argument(key: Owner, array: Any) -> None:
    weakref.finalize(key, len, [array])


def callback_with(array: Any) -> Callable[[Any], None]:
    def callback(_: Any) -> None:
        assert array is not None

    return callback


def in_callback(key: Owner, array: Any) -> None:
    """The weak reference keeps its callback when that was called, and with it the array."""
    references.append(weakref.ref(key, callback_with(array)))


def in_own_callback(key: Owner, array: Any) -> None:
    """The weak reference is garbage as well: nothing calls back, and the owner holds the array."""
    key.arrays.append(weakref.ref(key, callback_with(array)))


CACHES: tuple[Callable[[Owner, Any], None], ...] = (
    as_value,
    as_value,
    as_argument,
    as_argument,
    in_callback,
    in_own_callback,
)


@pytest.fixture(autouse=True)
def forgotten() -> Any:
    yield
    references.clear()
    alive.clear()
    _native.forget_epochs()


class Program:
    """Makes garbage, and knows which owner holds which array."""

    def __init__(self, number: int) -> None:
        self.random = Random(number)
        self.held: list[tuple[weakref.ref[Any], set[str]]] = []

    def run(self) -> None:
        random = self.random
        owners = [kind() for kind in random.choices(OWNERS, k=random.randint(1, 4))]
        for owner in owners:
            if random.random() < 0.1:
                alive.append(owner)
        for _ in range(random.randint(1, 4)):
            array = numpy.ones(SIZE)
            holders = random.sample(owners, random.randint(0, len(owners)))
            for owner in holders:
                owner.arrays.append(array)
            for key in random.choices(owners, k=random.randint(0, 2)):
                cache = random.choice(CACHES)
                cache(key, array)
                if cache is in_own_callback:
                    holders.append(key)
            if random.random() < 0.1:
                alive.append(array)
            self.held.append((weakref.ref(array), {type(it).__name__ for it in holders}))

    def expected(self) -> Counter[str]:
        """Once all is collected: the bytes of each owner's arrays that went."""
        found: Counter[str] = Counter()
        for array, owners in self.held:
            if array() is None:
                found.update(dict.fromkeys(owners, 8 * SIZE))
        return found


def said(report: cyclescope.CycleReport) -> Counter[str]:
    found: Counter[str] = Counter()
    for each in report.leaks:
        (owner,) = (step.type_name for step in each.cycle if step.type_name.endswith(NAMES))
        found[owner.rpartition(".")[2]] += each.bytes_held
    return found


NAMES = tuple(kind.__name__ for kind in OWNERS)


def found_by_check(make: Callable[[], None]) -> cyclescope.CycleReport:
    make()
    return cyclescope.find_tensor_cycles(devices="any", frozen=False)


def found_by_assertion(make: Callable[[], None]) -> cyclescope.CycleReport | None:
    try:
        with cyclescope.forbid_tensor_cycles(devices="any"):
            make()
    except cyclescope.TensorCycleError as error:
        return error.report
    return None


def found_by_check_of_new(make: Callable[[], None]) -> cyclescope.CycleReport | None:
    """As the pytest plugin checks after each test."""
    epoch = _native.begin_epoch()
    assert epoch is not None
    make()
    return _native.find_new(["any"], [], epoch[0])


def found_by_check_if_any(make: Callable[[], None]) -> cyclescope.CycleReport | None:
    make()
    return _native.find_new(["any"], [], 0)


def found_by_watch(make: Callable[[], None]) -> cyclescope.CycleReport | None:
    reports: list[cyclescope.CycleReport] = []
    with cyclescope.observe_tensor_cycles(reports.append, devices="any") as watch:
        make()
        gc.collect()
        watch.flush()
    (report,) = reports or (None,)
    return report


WAYS = (
    found_by_check,
    found_by_assertion,
    found_by_check_of_new,
    found_by_check_if_any,
    found_by_watch,
)


@pytest.mark.parametrize("find", WAYS)
def test_random_programs(find: Callable[..., cyclescope.CycleReport | None]) -> None:
    held = 0
    for number in range(CASES):
        program = Program(number)
        report = find(program.run)
        gc.collect()
        expected = program.expected()
        assert (said(report) if report else Counter()) == expected, number
        held += expected.total()
        references.clear()
        alive.clear()
        gc.collect()
    assert held > CASES * SIZE


class Left:
    right: Any
    plain: Any
    cached: Any


class Right:
    left: Any
    plain: Any
    cached: Any


@pytest.mark.parametrize("swapped", [False, True])
def test_what_is_found_later_is_told_by_its_own_holder(swapped: bool) -> None:
    """The cycle that is shown begins at the holder of what was found first."""
    left, right = Left(), Right()
    left.right, right.left = right, left
    first, second = (right, left) if swapped else (left, right)
    first.plain, second.cached = numpy.ones(SIZE), numpy.ones(2 * SIZE)
    values[left] = [second.cached]
    del left, right
    holders = [type(first).__name__, type(second).__name__]
    del first, second
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    by_path = {
        buffer.path[0]: leak.cycle[buffer.from_step].type_name.rpartition(".")[2]
        for buffer in leak.buffers
    }
    assert by_path == dict(zip((".plain", ".cached"), holders, strict=True))
