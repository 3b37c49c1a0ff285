"""Arrays of Numba on a machine without a GPU: of the real package, or of a stand-in for it.

The classes of the stand-in have what those of Numba have in their objects' dictionaries, and free
memory in the same order (`cudadrv/driver.py`, `cudadrv/devicearray.py`). What they do not need is a
driver. Of the real package, only the memory manager is replaced.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from types import ModuleType
from typing import Any

import numpy as np

MIB = 2**20
POINTER = 0x7E00_0000_0000

calls: list[str] = []
"""What ran of the code of the stand-in."""


class Device:
    def __init__(self, number: int) -> None:
        self.id = number

    def __getattr__(self, name: str) -> Any:
        calls.append(name)
        raise AttributeError(name)


class Context:
    def __init__(self, device: int) -> None:
        self.device = Device(device)
        self.allocations: dict[int, Any] = {}
        self.freed: list[int] = []


class MemoryPointer:
    def __init__(
        self, context: Any, pointer: Any, size: int, owner: Any = None, finalizer: Any = None
    ) -> None:
        self.context = context
        self.device_pointer = pointer
        self.size = size
        self.is_managed = finalizer is not None
        self.refct = 1
        self._owner = owner
        if finalizer is not None:
            self._finalizer = weakref.finalize(self, finalizer)

    @property
    def owner(self) -> Any:
        calls.append("owner")
        return self if self._owner is None else self._owner

    def own(self) -> Any:
        return OwnedPointer(weakref.proxy(self))

    def free(self) -> None:
        self._finalizer()

    @property
    def device_ctypes_pointer(self) -> ctypes.c_size_t:
        calls.append("device_ctypes_pointer")
        return ctypes.c_size_t(int(self.device_pointer.value))


class AutoFreePointer(MemoryPointer):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.refct -= 1


class OwnedPointer:
    def __init__(self, memptr: Any, view: Any = None) -> None:
        self._mem = memptr
        self._view = memptr if view is None else view
        mem = self._mem

        def deref() -> None:
            try:
                mem.refct -= 1
                if mem.refct == 0:
                    mem.free()
            except ReferenceError:
                pass

        self._mem.refct += 1
        weakref.finalize(self, deref)
        self.device_ctypes_pointer = self._view.device_ctypes_pointer

    def __getattr__(self, name: str) -> Any:
        calls.append(name)
        return getattr(self._view, name)


class DeviceNDArrayBase:
    def __init__(
        self, shape: Any, strides: Any, dtype: Any, stream: Any = 0, gpu_data: Any = None
    ) -> None:
        self.shape, self.strides, self.dtype = shape, strides, np.dtype(dtype)
        self.size = int(np.prod(shape))
        self.alloc_size = self.size * self.dtype.itemsize
        self.gpu_data, self.stream = gpu_data, stream

    @property
    def __cuda_array_interface__(self) -> Any:
        calls.append("__cuda_array_interface__")
        raise AssertionError


class DeviceNDArray(DeviceNDArrayBase):
    pass


def import_numba() -> None:
    """Put the stand-in in place of Numba's modules."""
    arrays, driver = (
        ModuleType(f"numba.cuda.cudadrv.{name}") for name in ("devicearray", "driver")
    )
    vars(arrays).update(DeviceNDArrayBase=DeviceNDArrayBase, DeviceNDArray=DeviceNDArray)
    vars(driver).update(
        MemoryPointer=MemoryPointer, AutoFreePointer=AutoFreePointer, OwnedPointer=OwnedPointer
    )
    sys.modules.update({module.__name__: module for module in (arrays, driver)})


class Gpu:
    """A device whose memory is numbers, with Numba's classes over it."""

    def __init__(self, device: int = 0) -> None:
        self.driver = sys.modules["numba.cuda.cudadrv.driver"]
        self.arrays = sys.modules["numba.cuda.cudadrv.devicearray"]
        self.context = Context(device)
        self.next = POINTER

    def pointer(self, address: int) -> Any:
        """An address as Numba has it: that of `cuda.bindings`, or of `ctypes` as in older ones."""
        bindings = getattr(self.driver, "binding", None)
        of_bindings = getattr(bindings, "CUdeviceptr", None)
        return ctypes.c_uint64(address) if of_bindings is None else of_bindings(address)

    def allocate(self, size: int) -> Any:
        """As `NumbaCUDAMemoryManager.memalloc`."""
        address, self.next = self.next, self.next + size
        allocations, freed = self.context.allocations, self.context.freed

        def finalizer() -> None:
            allocations.pop(address, None)
            freed.append(address)

        mem = self.driver.AutoFreePointer(
            weakref.proxy(self.context), self.pointer(address), size, finalizer=finalizer
        )
        allocations[address] = mem
        return mem.own()

    def over(self, gpu_data: Any, size: int, dtype: str = "float32") -> Any:
        item = np.dtype(dtype).itemsize
        return self.arrays.DeviceNDArray((size // item,), (item,), dtype, gpu_data=gpu_data)

    def array(self, size: int = MIB, dtype: str = "float32") -> Any:
        return self.over(self.allocate(size), size, dtype)

    def view(self, array: Any) -> Any:
        """An array with a share of its own in the memory, as `array[:n]`."""
        size = array.alloc_size // 2
        mem = array.gpu_data._mem
        part = self.driver.MemoryPointer(mem.context, mem.device_pointer, size, owner=mem)
        return self.over(self.driver.OwnedPointer(mem, part), size)

    def of_others(self, address: int, size: int, owner: Any = None) -> Any:
        """As `cuda.as_cuda_array`: memory that something else lent, or that is but a number."""
        pointer = self.driver.MemoryPointer(
            weakref.proxy(self.context), self.pointer(address), size, owner=owner
        )
        return self.over(pointer, size)

    @property
    def in_use(self) -> int:
        """What Numba counts itself."""
        return sum(mem.size for mem in self.context.allocations.values())
