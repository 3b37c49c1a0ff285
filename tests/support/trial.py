"""A fixture made to leak, with every tensor that it makes under watch; and what it must be then.

What ``EXPECTED`` says of a fixture is verified here without cyclescope, with the collector alone:
each tensor of a leak outlives the call and goes with a collection; the cycle, the path and the cut
are really there, found by following their names through the heap. A look-alike leaves no memory to
the collector.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import common
from support import heap_by_name

MIB = 2**20


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


class Trial:
    """A fixture on a device, run as often as needed; it knows the tensors of its last leak."""

    def __init__(self, name: str, device: str) -> None:
        self.fixture = common.load(name)
        self.expected = self.fixture.EXPECTED
        self.device = device
        self.made: list[Made] = []

    def leak(self, mib: int = 1) -> None:
        self.made.clear()
        module: Any = self.fixture
        module.tensor = self._tensor
        try:
            module.leak(self.device, mib)
        finally:
            module.tensor = common.tensor
        assert self.made, "the fixture makes its tensors elsewhere, so nothing can be said of it"

    def _tensor(self, device: str, mib: int) -> Any:
        new = common.tensor(device, mib)
        storage = new.untyped_storage() if hasattr(new, "untyped_storage") else new
        self.made.append(Made(weakref.ref(storage), address_of(new), mib * MIB))
        return new

    @property
    def held(self) -> int:
        """Bytes of the tensors that are still there."""
        return sum(one.held for one in self.made)

    def let_go(self) -> None:
        """Drop what a fixture keeps in use on purpose."""
        if self.expected.stays_alive:
            self.fixture.ALIVE.clear()  # type: ignore[attr-defined]


def address_of(tensor: Any) -> int:
    """Where the memory of a tensor, a parameter or an array begins; 0 if it has none."""
    if hasattr(tensor, "__array_interface__") and not hasattr(tensor, "untyped_storage"):
        return int(tensor.__array_interface__["data"][0])
    storage = tensor.untyped_storage()
    return 0 if storage.device.type == "meta" else int(storage.data_ptr())


def allocated(device: str) -> int:
    """Bytes that PyTorch's allocator has given out on a GPU; host memory is not counted."""
    if device == "cpu":
        return 0
    import torch

    return torch.cuda.memory_allocated(device)


@contextmanager
def small_heap() -> Iterator[None]:
    """Leave what is there now out of every look at the heap; there should be no garbage.

    What was left out before stays so.
    """
    is_outermost = gc.get_freeze_count() == 0
    gc.freeze()
    try:
        yield
    finally:
        if is_outermost:
            gc.unfreeze()


def untruths(trial: Trial) -> Iterator[str]:
    """What ``EXPECTED`` says and CPython does not, a sentence each."""
    with small_heap():
        yield from memory_stays_or_goes(trial)
        if trial.expected.leaks:
            yield from saveall_sees_it(trial)
            yield from names_are_there(trial)
        elif trial.expected != common.Expected(leaks=0, stays_alive=trial.expected.stays_alive):
            yield "EXPECTED names the cycle of a look-alike"


def memory_stays_or_goes(trial: Trial) -> Iterator[str]:
    trial.leak(2)
    before = allocated(trial.device)
    if trial.expected.stays_alive:
        gc.collect()
        if trial.held != sum(one.nbytes for one in trial.made):
            yield "what should stay in use is freed by a collection"
        trial.let_go()
    elif trial.held != trial.expected.nbytes(2):
        yield f"{trial.held} bytes outlive the call, not {trial.expected.nbytes(2)}"
    gc.collect()
    if trial.held:
        yield f"{trial.held} bytes outlive a collection"
    if trial.device != "cpu" and before - allocated(trial.device) < trial.expected.nbytes(2):
        yield "the allocator did not get the memory back"


def saveall_sees_it(trial: Trial) -> Iterator[str]:
    """A finalizer that breaks the cycle hides it from ``DEBUG_SAVEALL``, and nothing else does."""
    trial.leak()
    try:
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
    finally:
        gc.set_debug(0)
    expected = trial.expected.seen_by_saveall
    if expected is not None and (trial.held > 0) != expected:
        yield f"DEBUG_SAVEALL saves {trial.held} bytes of it"
    gc.garbage.clear()
    gc.collect()
    if trial.held:
        yield f"{trial.held} bytes outlive the garbage that was saved"


def names_are_there(trial: Trial) -> Iterator[str]:
    expected = trial.expected
    trial.leak()
    reached = {
        address_of(tensor)
        for chain in heap_by_name.chains(expected.cycle)
        for tensor in heap_by_name.tensors_behind(chain, expected.path)
    }
    gc.collect()
    if reached != {one.address for one in trial.made}:
        yield "the cycle and the path do not lead to the tensors, and to them alone"
    edges = {edge for _, edge in expected.cycle} | set(expected.path)
    if expected.cut is None or expected.cut[1] not in edges:
        yield f"the cut {expected.cut} is not on the cycle or the path"
