"""CuPy and the CUDA driver, as far as cyclescope looks at them, on a machine without a GPU.

The classes keep what they have in ``__slots__``, whose descriptors are written in C as those of the
real CuPy are.
"""

from __future__ import annotations

import ctypes
import sys
from types import ModuleType
from typing import Any

MIB = 2**20
POINTER = 0x7F00_0000_0000


class BaseMemory:
    __slots__ = ("__weakref__", "device_id", "ptr", "size")

    def __init__(self, ptr: int, size: int, device_id: int) -> None:
        self.ptr, self.size, self.device_id = ptr, size, device_id


class Memory(BaseMemory):
    __slots__ = ("_block",)

    def __init__(self, ptr: int, size: int, device_id: int) -> None:
        super().__init__(ptr, size, device_id)
        self._block = bytes(16 + len(_blocks))
        _blocks.append((self._block, size))


_blocks: list[tuple[bytes, int]] = [(bytes(16), 0)]
"""What the counters count: for each block an object of no interest to the collector. The first
belongs to none."""


def allocated() -> int:
    """Bytes of the blocks that are alive: those whose object is referred to from elsewhere too."""
    references = [sys.getrefcount(block) for block, _ in _blocks]
    return sum(
        size for (_, size), count in zip(_blocks, references, strict=True) if count > references[0]
    )


class UnownedMemory(BaseMemory):
    __slots__ = ("_owner",)

    def __init__(self, ptr: int, size: int, owner: object, device_id: int) -> None:
        super().__init__(ptr, size, device_id)
        self._owner = owner


class ForeignMemory(BaseMemory):
    """Of a class that is not CuPy's, as memory that came by DLPack is."""

    __slots__ = ()


class MemoryPointer:
    __slots__ = ("mem",)

    def __init__(self, mem: BaseMemory) -> None:
        self.mem = mem


class ndarray:
    __slots__ = ("__weakref__", "data", "dtype", "shape")

    def __init__(self, memory: BaseMemory) -> None:
        self.data = MemoryPointer(memory)
        self.dtype = "float32"
        self.shape = (memory.size // 4,)


class Holder:
    """An object that refers to itself and to whatever it is given."""

    def __init__(self, held: object) -> None:
        self.held = held
        self.me = self


def array(ptr: int = POINTER, size: int = MIB, device: int = 0) -> ndarray:
    return ndarray(Memory(ptr, size, device))


def modules() -> dict[str, ModuleType]:
    """The modules of the stand-in for CuPy."""
    cupy, cuda, memory = (ModuleType(n) for n in ("cupy", "cupy.cuda", "cupy.cuda.memory"))
    vars(cupy).update(ndarray=ndarray, cuda=cuda)
    vars(cuda).update(memory=memory, Memory=Memory, MemoryPointer=MemoryPointer)
    vars(memory).update(
        BaseMemory=BaseMemory,
        Memory=Memory,
        MemoryPointer=MemoryPointer,
        UnownedMemory=UnownedMemory,
    )
    return {module.__name__: module for module in (cupy, cuda, memory)}


def import_cupy() -> None:
    sys.modules.update(modules())


def count_like_pytorch(backend: str = "native") -> None:
    """Put PyTorch's allocator counters over the blocks that are alive, without PyTorch."""
    native, cuda = ModuleType("torch._C"), ModuleType("torch.cuda")

    def memory_stats(device: int) -> dict[str, Any]:
        if device > 0:
            raise RuntimeError("no such device")
        # Its blocks are no larger than what was asked for.
        return {
            "allocated_bytes": {"all": {"current": allocated()}},
            "requested_bytes": {"all": {"current": allocated()}},
        }

    vars(native).update(
        _cuda_isInBadFork=lambda: False,
        _cuda_getAllocatorBackend=lambda: backend,
        _cuda_memoryStats=memory_stats,
    )
    vars(cuda).update(_initialized=True)
    sys.modules.update({"torch._C": native, "torch.cuda": cuda})


class Driver:
    """The stand-in for the driver, loaded into this process."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)
        self.library.standin_set.argtypes = [ctypes.c_uint64] + [ctypes.c_int] * 3

    def knows(self, ptr: int = POINTER, *, kind: str = "device", ordinal: int = 0) -> Driver:
        memory_type = {"unknown": 0, "host": 1, "device": 2, "managed": 1}[kind]
        self.library.standin_set(ptr, memory_type, ordinal, kind == "managed")
        return self

    def fail(self, result: int) -> Driver:
        self.library.standin_fail(result)
        return self

    @property
    def calls(self) -> int:
        return int(self.library.standin_calls())


def mapped(name: str) -> bool:
    """Whether some library of this name is in the process."""
    with open("/proc/self/maps") as maps:
        return any(name in line for line in maps)


def buffers(report: Any) -> list[dict[str, Any]]:
    """What a report says of buffers, as plain data."""
    names = ("device", "pointer", "bytes", "confirmed")
    return [
        {name: getattr(buffer, name) for name in names}
        for leak in report.leaks
        for buffer in leak.buffers
    ]
