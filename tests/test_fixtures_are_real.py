"""Is each fixture what it says it is? Answered without cyclescope, with the collector alone.

For each leak: the tensors outlive the call and go with a collection; the cycle, the path and the
cut that ``EXPECTED`` names are really there, found by following the names through the heap. For
each look-alike: no memory is left to the collector.
"""

from __future__ import annotations

import gc
import runpy
import sys
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, FunctionType, ModuleType
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "fixtures"))

import common
from common import Expected, Fixture


@dataclass
class Made:
    """A tensor that a fixture made, watched through its storage."""

    storage: weakref.ref[Any]
    address: int
    nbytes: int

    @property
    def held(self) -> int:
        """Bytes that it still holds; 0 for a tensor that never had memory."""
        return self.nbytes if self.address and self.storage() is not None else 0


def address_of(tensor: Any) -> int:
    """Where the memory of a tensor, a parameter or an array begins; 0 if it has none."""
    if hasattr(tensor, "__array_interface__") and not hasattr(tensor, "untyped_storage"):
        return int(tensor.__array_interface__["data"][0])
    storage = tensor.untyped_storage()
    return 0 if storage.device.type == "meta" else int(storage.data_ptr())


@pytest.fixture(scope="module", autouse=True)
def small_heap() -> Iterator[None]:
    """Leave what PyTorch brought out of every look at the heap: it has nothing to do with this."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def paused(small_heap: None) -> Iterator[None]:
    with common.collector_paused():
        yield


@pytest.fixture(params=common.names())
def fixture(request: pytest.FixtureRequest) -> Fixture:
    return common.load(request.param)


@pytest.fixture
def made(fixture: Fixture, monkeypatch: pytest.MonkeyPatch) -> list[Made]:
    """The tensors that the fixture makes from now on."""
    tensors: list[Made] = []

    def tensor(device: str, mib: int) -> Any:
        new = common.tensor(device, mib)
        storage = new.untyped_storage() if hasattr(new, "untyped_storage") else new
        tensors.append(Made(weakref.ref(storage), address_of(new), mib * 2**20))
        return new

    monkeypatch.setattr(fixture, "tensor", tensor)
    return tensors


def held(made: list[Made]) -> int:
    return sum(one.held for one in made)


def test_memory_goes_when_it_should(fixture: Fixture, made: list[Made]) -> None:
    expected = fixture.EXPECTED
    fixture.leak("cpu", 2)
    assert made
    if expected.stays_alive:
        gc.collect()
        assert held(made) == sum(one.nbytes for one in made)
        fixture.ALIVE.clear()  # type: ignore[attr-defined]
    else:
        assert held(made) == expected.nbytes(2)
    gc.collect()
    assert held(made) == 0


def test_saveall(fixture: Fixture, made: list[Made]) -> None:
    """A finalizer that breaks the cycle hides it from ``DEBUG_SAVEALL``, and nothing else does."""
    if not fixture.EXPECTED.leaks:
        return
    fixture.leak("cpu")
    try:
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
    finally:
        gc.set_debug(0)
    assert (held(made) > 0) == fixture.EXPECTED.seen_by_saveall
    gc.garbage.clear()
    gc.collect()
    assert held(made) == 0


def test_cycle_path_and_cut_are_there(fixture: Fixture, made: list[Made]) -> None:
    expected = fixture.EXPECTED
    if not expected.leaks:
        assert expected == Expected(leaks=0, stays_alive=expected.stays_alive)
        return
    fixture.leak("cpu")
    reached = {address for cycle in cycles(expected) for address in buffers(cycle, expected.path)}
    assert reached == {one.address for one in made}
    assert expected.cut is not None
    assert expected.cut[1] in {edge for _, edge in expected.cycle} | set(expected.path)


def test_runs_as_a_program(fixture: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(fixture, ModuleType)
    program = str(fixture.__file__)
    monkeypatch.setattr(sys, "argv", [program, "--device", "cpu", "--iterations", "2"])
    runpy.run_path(program, run_name="__main__")


def test_there_is_no_cyclescope_without_warn() -> None:
    for name in common.names():
        assert "cyclescope" not in (Path(common.__file__).parent / f"{name}.py").read_text()


def cycles(expected: Expected) -> Iterator[list[Any]]:
    """Every list of objects in the heap whose types and references are those of the cycle."""
    names = [name for name, _ in expected.cycle]
    edges = [edge for _, edge in expected.cycle]
    for first in gc.get_objects():
        if not is_a(first, names[0]):
            continue
        chains = [[first]]
        for name, edge in zip(names[1:], edges[:-1], strict=True):
            chains = [[*c, o] for c in chains for o in follow(c[-1], edge) if is_a(o, name)]
        for chain in chains:
            if any(last is first for last in follow(chain[-1], edges[-1])):
                yield chain


def buffers(cycle: list[Any], path: tuple[str, ...]) -> Iterator[int]:
    """Addresses of the tensors at the end of ``path``, from whichever step it starts."""
    for step in cycle:
        ends = [step]
        for edge in path:
            ends = [end for owner in ends for end in follow(owner, edge)]
        for end in ends:
            if is_a(end, "torch.Tensor") or is_a(end, "Parameter") or is_a(end, "numpy.ndarray"):
                yield address_of(end)


def is_a(thing: object, name: str) -> bool:
    return name in f"{type(thing).__module__}.{type(thing).__qualname__}"


def follow(owner: Any, edge: str) -> Iterable[Any]:
    """The objects that ``owner`` refers to by the name ``edge``, as a report writes it."""
    kind, _, name = edge.partition(" '")
    name = name.removesuffix("'")
    if edge == "an internal reference":
        return gc.get_referents(owner)
    if edge == "element":
        return list(owner) if isinstance(owner, set) else []
    if edge == "[":
        return list(owner.values()) if isinstance(owner, dict) else []
    if edge.startswith("['"):
        return [owner[edge[2:-2]]] if isinstance(owner, dict) and edge[2:-2] in owner else []
    if edge.startswith("["):
        index = int(edge[1:-1])
        sequence = isinstance(owner, tuple) or hasattr(owner, "append")
        return [owner[index]] if sequence and len(owner) > index else []
    if edge == "an internal reference":
        return gc.get_referents(owner)
    if edge.startswith("."):
        value = getattr(owner, edge[1:], None)
        return value if isinstance(value, tuple) else [value]
    if kind == "local":
        frames = (getattr(owner, f"{prefix}_frame", None) for prefix in ("gi", "cr", "ag"))
        frame = owner if isinstance(owner, FrameType) else next(filter(None, frames), None)
        return [frame.f_locals[name]] if frame and name in frame.f_locals else []
    if not isinstance(owner, FunctionType):
        return []
    code = owner.__code__
    if kind == "closure variable" and name in code.co_freevars and owner.__closure__:
        return [owner.__closure__[code.co_freevars.index(name)].cell_contents]
    if kind == "default argument" and owner.__defaults__:
        names = code.co_varnames[: code.co_argcount]
        return [d for n, d in zip(names[::-1], owner.__defaults__[::-1], strict=False) if n == name]
    return []
