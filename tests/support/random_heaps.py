"""Programs that hold memory at random, to ask who does and then to delete just that reference."""

from __future__ import annotations

import array
import ctypes
import gc
import mmap
import sys
import tracemalloc
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


EXPORTERS: dict[str, Callable[[int], Any]] = {
    "bytearray": bytearray,
    "bytes": bytes,
    "array.array": lambda size: array.array("B", bytes(size)),
    "mmap": lambda size: mmap.mmap(-1, size),
    "ctypes": lambda size: (ctypes.c_char * size)(),
    "subclass": lambda size: Bytes(size),
}


class Model:
    """Holds arrays and other models."""


class Bytes(bytearray):
    """Can be referred to weakly."""


class Lender:
    """Lends the memory of another object, as libraries of their own do."""

    def __init__(self, exporter: Any) -> None:
        self.exporter = exporter
        self.__array_interface__ = numpy.frombuffer(exporter, numpy.uint8).__array_interface__


class Heaps:
    """The module of a program. Built again from its number, it is the same."""

    def __init__(self, number: int, with_torch: bool) -> None:
        self.random = random = Random(number)
        self.module = types.ModuleType(MODULE)
        sys.modules[MODULE] = self.module
        self.made: list[int] = []
        self.memory_of: list[tuple[int, Callable[[], bool]]] = []
        self.users: list[tuple[int, weakref.ref[Any]]] = []
        """What uses the memory of an exporter of so many bytes."""
        self.with_torch = with_torch
        things: list[Any] = []
        for _ in range(random.randint(1, 4)):
            things += self.memory()
        for _ in range(random.randint(0, 6)):
            things.append(self.holder(random.choices(things, k=random.randint(1, 3))))
        for index in range(random.randint(1, 4)):
            setattr(self.module, f"variable_{index}", random.choice(things))
        if random.random() < 0.3:  # Garbage refers to something.
            ring: list[Any] = [random.choice(things)]
            ring.append(ring)
            del ring
        if random.random() < 0.3:
            self.module.model = random.choice(things)  # type: ignore[attr-defined]
            self.module.again = [self.module.model]  # type: ignore[attr-defined]

    def memory(self) -> list[Any]:
        """What holds memory, of a size like no other's."""
        random = self.random
        size = random.choice(SIZES) + 64 * len(self.made)
        self.made.append(size)
        kinds = ["array", "view", "lent", "lent", "tensor", "sparse", "csr"]
        graphs = ["graph", "function", "retained"]
        kind = random.choice(kinds + graphs)
        if kind == "lent":
            return self.lent(size)
        if kind in ("array", "view") or not self.with_torch:
            own = self.watched(numpy.zeros(size, numpy.uint8))
            return [own[random.randrange(8) :] if kind == "view" else own]
        import torch

        if kind == "tensor":
            return [self.watched_tensor(torch.zeros(size))]
        if kind in graphs:
            weight = self.watched_tensor(torch.ones(size, requires_grad=True))
            result = self.watched_tensor((weight * 2).exp())
            if kind == "retained":
                result.retain_grad()
                result.sum().backward()
                self.watched_tensor(weight.grad)
                self.watched_tensor(result.grad)
                return [random.choice([result, result.grad])]
            return [result.sum() if kind == "graph" else result.sum().grad_fn]
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
        return [sparse]

    def lent(self, size: int) -> list[Any]:
        """Arrays and tensors on the memory of another object, and perhaps that object."""
        random = self.random
        kind = random.choice([*EXPORTERS, "numpy"])
        exporter: Any
        exporter = numpy.zeros(size, numpy.uint8) if kind == "numpy" else EXPORTERS[kind](size)
        try:
            gone = weakref.ref(exporter)
            self.memory_of.append((size, lambda: gone() is None))
        except TypeError:
            self.memory_of.append((size, lambda: not is_allocated(size)))
        users = [self.user(exporter, size) for _ in range(random.choice([1, 1, 2, 3]))]
        arrays = [*users, exporter] if kind == "numpy" else users
        self.users += [(size, weakref.ref(user)) for user in arrays]
        also = [exporter] if random.random() < 0.3 else []
        return users + also

    def user(self, exporter: Any, size: int) -> Any:
        random = self.random
        kinds = ["frombuffer", "offset", "memoryview", "part", "cast", "window", "interface"]
        kinds += ["torch", "from_numpy"] * 2 * self.with_torch
        if self.with_torch and gc.is_tracked(exporter):
            # What C++ alone holds and the collector does not know, nobody finds: a tensor tells
            # of its own part only.
            kinds += ["torch offset", "from_view"] * 2
        kind = random.choice(kinds)
        of_exporter = numpy.frombuffer(exporter, numpy.uint8)
        match kind:
            case "offset":
                return numpy.frombuffer(exporter, numpy.uint8, offset=size // 2)
            case "memoryview":
                return numpy.asarray(memoryview(exporter))
            case "part":
                return numpy.asarray(memoryview(exporter)[64:])
            case "cast":
                return numpy.asarray(memoryview(exporter).cast("B").cast("I"))
            case "window":
                return numpy.lib.stride_tricks.sliding_window_view(of_exporter, 16)[3:]
            case "interface":
                return numpy.asarray(Lender(exporter))
        if not kind.startswith(("torch", "from_")):
            return of_exporter
        import torch

        match kind:
            case "torch":
                return torch.frombuffer(exporter, dtype=torch.uint8)
            case "torch offset":
                return torch.frombuffer(exporter, dtype=torch.uint8, offset=size // 2)
            case "from_numpy":
                return torch.from_numpy(of_exporter)
        return torch.from_numpy(of_exporter[size // 2 :])

    def watched(self, own: Any) -> Any:
        gone = weakref.ref(own)
        self.memory_of.append((own.nbytes, lambda: gone() is None))
        return own

    def watched_tensor(self, tensor: Any) -> Any:
        import torch

        storage = tensor.untyped_storage()
        weak = storage._weak_ref()
        is_gone: Any = torch.UntypedStorage._expired
        self.memory_of.append((storage.nbytes(), lambda: bool(is_gone(weak))))
        return tensor

    def gone(self) -> set[int]:
        """What is gone by now, by position."""
        return {at for at, (_, is_gone) in enumerate(self.memory_of) if is_gone()}

    def unused(self) -> set[int]:
        """What no array or tensor uses, by position."""
        unused = {size for size, _ in self.users} - set(self.in_use())
        return {at for at, (size, _) in enumerate(self.memory_of) if size in unused}

    def bytes_of(self, positions: set[int]) -> int:
        """How many bytes these have together."""
        return sum(self.memory_of[at][0] for at in positions)

    def in_use(self) -> list[int]:
        """The bytes of exporters whose memory an array or tensor uses."""
        return sorted({size for size, user in self.users if user() is not None})

    def holder(self, things: list[Any]) -> Any:
        first = things[0]
        kinds = [
            "model",
            "model",
            "list",
            "dict",
            "tuple",
            "closure",
            "ring",
            "child",
            "class",
            "function",
        ]
        match self.random.choice(kinds):
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
            case "child":  # It refers to its parent, which holds it, and the rest.
                model = Model()
                model.child = Model()  # type: ignore[attr-defined]
                model.child.parent = model  # type: ignore[attr-defined]
                model.child.things = things[1:]  # type: ignore[attr-defined]
                model.first = first  # type: ignore[attr-defined]
                return random_part(self.random, model)
            case "class":
                return type("Made", (), {"attribute": first})
            case "function":  # It refers to itself.

                def again() -> Any:
                    return again, first

                return again
            case _:
                model = Model()
                model.me = model  # type: ignore[attr-defined]
                model.first = first  # type: ignore[attr-defined]
                return model

    def close(self) -> None:
        vars(self.module).clear()
        sys.modules.pop(MODULE, None)


def random_part(random: Random, model: Any) -> Any:
    """A model or its child, which refer to each other."""
    return model if random.random() < 0.5 else model.child


def is_allocated(size: int) -> bool:
    """Whether the memory of a `bytes` or `bytearray` of this size is there."""
    traces = tracemalloc.take_snapshot().traces
    return any(size <= trace.size < size + 64 for trace in traces)


def rows(heap: cyclescope.Heap) -> list[cyclescope.HeapRow]:
    table = heap.top("owner", 1000)
    return [row for row in table.rows if row.name.startswith(f"module `{MODULE}`")]


def check_rows(number: int, with_torch: bool = False) -> int:
    """Deletes the variable of each row in turn: what is freed, at once or by a collection, is what
    the row says."""
    heaps = Heaps(number, with_torch)
    heap = cyclescope.heap()
    told = {row.name.split("`")[3]: row for row in rows(heap)}
    lent = sorted(it.bytes for it in heap.buffers if it.bytes in {size for size, _ in heaps.users})
    assert lent == heaps.in_use(), f"{lent=}, in_use={heaps.in_use()}"
    # What no array or tensor uses is not told, nor what garbage alone holds.
    untold = heaps.unused()
    gc.collect()
    untold |= heaps.gone()
    heaps.close()
    del heaps
    gc.collect()
    for name, row in told.items():
        heaps = Heaps(number, with_torch)
        try:
            delattr(heaps.module, name)
            at_once = heaps.bytes_of(heaps.gone() - untold)
            gc.collect()
            freed = heaps.bytes_of(heaps.gone() - untold)
            said = f"{name}: {at_once=}, {freed=}, {row.retained_bytes=}, {row.collected_bytes=}"
            assert abs(freed - row.retained_bytes) <= SMALL, said
            assert abs(freed - at_once - row.collected_bytes) <= SMALL, said
        finally:
            heaps.close()
            del heaps
            gc.collect()
    return len(told)


def main(first: int, count: int, with_torch: bool) -> None:
    if with_torch:
        import torch  # noqa: F401

        gc.collect()  # An import leaves garbage, which holds the frames that it came from.
    gc.disable()
    tracemalloc.start()
    alone = 0
    for number in range(first, first + count):
        try:
            alone += check_rows(number, with_torch)
        except Exception as error:
            raise AssertionError(f"program {number}") from error
    print(alone)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), "torch" in sys.argv)
