"""Programs that hold memory at random, to ask who does and then to delete just that reference."""

from __future__ import annotations

import gc
import sys
import types
import weakref
from collections.abc import Callable
from random import Random
from typing import Any

import numpy

import cyclescope

MODULE = "judged_heap"
SMALL = 200
"""The bytes of the numbers in autograd graphs, which are not watched."""

SIZES = [1 << 12, 3 << 12, 5 << 13, 7 << 14]


class Model:
    """Holds arrays and other models."""


class Heaps:
    """The module of a program. Built again from its number, it is the same."""

    def __init__(self, number: int, with_torch: bool) -> None:
        self.random = random = Random(number)
        self.module = types.ModuleType(MODULE)
        sys.modules[MODULE] = self.module
        self.made: list[int] = []
        self.memory_of: list[tuple[int, Callable[[], bool]]] = []
        self.with_torch = with_torch
        things: list[Any] = [self.memory() for _ in range(random.randint(1, 4))]
        for _ in range(random.randint(0, 6)):
            things.append(self.holder(random.choices(things, k=random.randint(1, 3))))
        for index in range(random.randint(1, 4)):
            setattr(self.module, f"variable_{index}", random.choice(things))
        if random.random() < 0.3:
            self.module.model = random.choice(things)  # type: ignore[attr-defined]
            self.module.again = [self.module.model]  # type: ignore[attr-defined]

    def memory(self) -> Any:
        """What holds memory, of a size like no other's."""
        random = self.random
        size = random.choice(SIZES) + 64 * len(self.made)
        self.made.append(size)
        kind = random.choice(["array", "array", "view", "tensor", "graph", "sparse", "csr"])
        if kind in ("array", "view") or not self.with_torch:
            array = self.watched(numpy.zeros(size, numpy.uint8))
            return array[random.randrange(8) :] if kind == "view" else array
        import torch

        if kind == "tensor":
            if random.random() < 0.5:
                return torch.from_numpy(self.watched(numpy.zeros(size, numpy.uint8)))
            return self.watched_tensor(torch.zeros(size))
        if kind == "graph":
            weight = self.watched_tensor(torch.ones(size, requires_grad=True))
            result = self.watched_tensor((weight * 2).exp())
            return result.sum()
        dense = torch.zeros(64, size // 64)
        dense[0] = 1
        if kind == "sparse":
            sparse = dense.to_sparse()
            parts = [sparse._indices(), sparse._values()]
        else:
            sparse = dense.to_sparse_csr()
            parts = [sparse.crow_indices(), sparse.col_indices(), sparse.values()]
        for part in parts:
            self.watched_tensor(part)
        return sparse

    def watched(self, array: Any) -> Any:
        gone = weakref.ref(array)
        self.memory_of.append((array.nbytes, lambda: gone() is None))
        return array

    def watched_tensor(self, tensor: Any) -> Any:
        import torch

        storage = tensor.untyped_storage()
        weak = storage._weak_ref()
        is_gone: Any = torch.UntypedStorage._expired
        self.memory_of.append((storage.nbytes(), lambda: bool(is_gone(weak))))
        return tensor

    def freed(self) -> int:
        """The bytes of what is gone by now."""
        gc.collect()
        return sum(size for size, is_gone in self.memory_of if is_gone())

    def holder(self, things: list[Any]) -> Any:
        first = things[0]
        match self.random.choice(["model", "model", "list", "dict", "tuple", "closure", "ring"]):
            case "model":
                model = Model()
                for name, thing in zip("abc", things, strict=False):
                    setattr(model, name, thing)
                return model
            case "list":
                return list(things)
            case "dict":
                return dict(zip("abc", things, strict=False))
            case "tuple":
                return tuple(things)
            case "closure":
                return lambda: first
            case _:
                model = Model()
                model.me = model  # type: ignore[attr-defined]
                model.first = first  # type: ignore[attr-defined]
                return model

    def close(self) -> None:
        vars(self.module).clear()
        sys.modules.pop(MODULE, None)


def rows(heap: cyclescope.Heap) -> list[cyclescope.HeapRow]:
    table = heap.top("owner", 1000)
    return [row for row in table.rows if row.name.startswith(f"module `{MODULE}`")]


def check_rows(number: int, with_torch: bool = False) -> int:
    """Deletes the variable of each row in turn: what is freed is what the row says."""
    heaps = Heaps(number, with_torch)
    gc.collect()
    told = {row.name.split("`")[3]: row.retained_bytes for row in rows(cyclescope.heap())}
    heaps.close()
    del heaps
    gc.collect()
    for name, bytes_ in told.items():
        heaps = Heaps(number, with_torch)
        try:
            before = heaps.freed()
            delattr(heaps.module, name)
            freed = heaps.freed() - before
            assert abs(freed - bytes_) <= SMALL, f"{name}: {freed=}, told={bytes_}"
        finally:
            heaps.close()
            del heaps
            gc.collect()
    return len(told)


def main(first: int, count: int, with_torch: bool) -> None:
    gc.disable()
    alone = 0
    for number in range(first, first + count):
        try:
            alone += check_rows(number, with_torch)
        except Exception as error:
            raise AssertionError(f"program {number}") from error
    print(alone)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), "torch" in sys.argv)
