"""Buffers of RMM and of cuda.core without a GPU: of the real packages, or of stand-ins.

The attributes of the stand-ins are slots, whose descriptors are written in C as those of the real
classes are. The memory of either is numbers.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

MIB = 2**20
POINTER = 0x7D00_0000_0000

allocated: dict[int, int] = {}
"""What the allocator counts: the size of each allocation, by its address."""

_next = POINTER


def _allocate(size: int, *_: Any, **__: Any) -> int:
    global _next
    address, _next = _next, _next + size
    allocated[address] = size
    return address


def _free(address: int, *_: Any, **__: Any) -> None:
    del allocated[int(address)]


class DeviceBuffer:
    __slots__ = ("mr", "ptr", "size", "stream")

    def __init__(self, size: int) -> None:
        self.ptr, self.size = _allocate(size), size

    def __del__(self) -> None:
        _free(self.ptr)


class Buffer:
    __slots__ = ("__weakref__", "handle", "memory_resource", "owner", "size")

    def __init__(self, handle: int, size: int, mr: Any, owner: Any) -> None:
        self.handle, self.size, self.memory_resource, self.owner = handle, size, mr, owner

    def __del__(self) -> None:
        if self.memory_resource is not None:
            _free(self.handle)


def import_stand_ins() -> None:
    """Put the stand-ins in place of the modules of RMM and cuda.core."""
    rmm, core = ModuleType("rmm.pylibrmm.device_buffer"), ModuleType("cuda.core._memory._buffer")
    vars(rmm).update(DeviceBuffer=DeviceBuffer)
    vars(core).update(Buffer=Buffer)
    sys.modules.update({module.__name__: module for module in (rmm, core)})


def rmm_buffer(size: int = MIB) -> Any:
    """A buffer of RMM."""
    if "rmm.mr" not in sys.modules:
        return DeviceBuffer(size)
    rmm = sys.modules["rmm"]
    resource = sys.modules["rmm.mr"].CallbackMemoryResource(_allocate, _free)
    return rmm.DeviceBuffer(size=size, mr=resource)


def core_buffer(size: int = MIB) -> Any:
    """A buffer of cuda.core, whose memory goes back to a resource of the program's."""
    if "cuda.core" not in sys.modules:
        return Buffer(_allocate(size), size, "resource", None)
    core = sys.modules["cuda.core"]

    class Resource(core.MemoryResource):  # type: ignore[misc, name-defined]
        is_device_accessible = False
        is_host_accessible = True

        @property
        def device_id(self) -> int:
            raise AssertionError("it was asked")

        def deallocate(self, ptr: int, size: int, *, stream: Any) -> None:
            _free(ptr)

    return core.Buffer.from_handle(_allocate(size), size, mr=Resource())


def core_view(address: int, size: int, owner: Any = None) -> Any:
    """A buffer of cuda.core over the memory of another object, or over what is but a number."""
    if "cuda.core" not in sys.modules:
        return Buffer(address, size, None, owner)
    return sys.modules["cuda.core"].Buffer.from_handle(address, size, owner=owner)
