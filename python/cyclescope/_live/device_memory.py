"""What all memory of a GPU is used for."""

from __future__ import annotations

import sys

from cyclescope import _native, _system
from cyclescope._imported import imported, imported_torch
from cyclescope._live import reading
from cyclescope._live.allocator import pinned_bytes, segments_of
from cyclescope._live.reading import Torch
from cyclescope._native import DeviceMemory as DeviceMemory
from cyclescope._off import OFF

Pool = tuple[str, int, str]
"""Memory of another framework's allocator: its name, its bytes, and what gives it back."""


def memory(device: object = None) -> DeviceMemory:
    """Divide all memory of a GPU that is in use: what each byte is for, and what gives it back.

    The rows add up to the memory in use according to the driver. They are parameters, gradients,
    optimizer state, tensors that autograd keeps, other tensors, garbage in reference cycles (by
    leak), frozen garbage, blocks that no Python object holds, memory that PyTorch's allocator has
    cached, free memory between blocks in use, memory reserved for one pool, the pools of CuPy and
    JAX, and memory outside of these: CUDA itself, libraries, and other processes. Pinned host
    memory has rows of its own, which are not part of the sum.

    Nothing is collected or freed, and no code of the program runs. The program is paused for about
    as long as three calls of ``gc.collect()`` take.

    Args:
        device: The GPU, such as ``"cuda:1"``, ``1`` or a ``torch.device``; by default the current
            one.

    Raises:
        RuntimeError: If the process does not use this GPU, or its allocator does not report its
            blocks (``cudaMallocAsync``).
        ValueError: If ``device`` is not a GPU.
    """
    if OFF:
        return _native.device_memory("cuda", (0, 0, _system.now()), [], [])
    torch = imported_torch()
    if torch is None or not reading.is_using_cuda(torch):
        if device is not None and _name_of(device).partition(":")[0] != "cuda":
            raise ValueError(f"device is {_name_of(device)!r}, which is not a GPU such as 'cuda:0'")
        raise RuntimeError(
            "memory() divides the memory of a GPU, and PyTorch uses none in this process; "
            "heap() lists the memory that Python objects hold"
        )
    ordinal = _ordinal(torch, device)
    if not torch._C._cuda_hasPrimaryContext(ordinal):
        raise RuntimeError(f"this process does not use cuda:{ordinal}")
    # What a collection frees meanwhile would be in use in one list and gone from the other.
    was_enabled = _system.is_collection_enabled()
    _system.disable_collection()
    try:
        segments = segments_of(torch, ordinal)
        free, total = torch.cuda.mem_get_info(ordinal)
        pools = [*_cupy(ordinal), *_jax(ordinal)]
        return _native.device_memory(
            f"cuda:{ordinal}", (total, free, _system.now()), segments, pools, pinned_bytes(torch)
        )
    finally:
        if was_enabled:
            _system.enable_collection()


def gpus_in_use() -> list[int]:
    """The numbers of the GPUs that PyTorch uses in this process."""
    torch = imported_torch()
    if torch is None or not reading.is_using_cuda(torch):
        return []
    count: int = torch.cuda.device_count()
    return [number for number in range(count) if torch._C._cuda_hasPrimaryContext(number)]


def _name_of(device: object) -> str:
    return f"cuda:{device}" if isinstance(device, int) else str(device)


def _ordinal(torch: Torch, device: object) -> int:
    """The number of a GPU."""
    count: int = torch.cuda.device_count()
    if device is None:
        return int(torch.cuda.current_device())
    name = _name_of(device)
    if name == "cuda":
        return int(torch.cuda.current_device())
    kind, _, number = name.partition(":")
    if kind != "cuda" or not number.isdecimal() or int(number) >= count:
        known = ", ".join(f"cuda:{number}" for number in range(count))
        raise ValueError(f"device is {name!r}, and the GPUs are {known}")
    return int(number)


def _cupy(ordinal: int) -> list[Pool]:
    """The memory pool of CuPy, if the program has imported it."""
    get_pool = imported("cupy", "get_default_memory_pool")
    pool = reading.quietly(get_pool or (lambda: None))
    if pool is None:
        return []

    def sizes() -> tuple[int, int]:
        with sys.modules["cupy"].cuda.Device(ordinal):
            return pool.used_bytes(), pool.free_bytes()

    used, free = reading.quietly(sizes) or (0, 0)
    return [
        ("arrays of CuPy", used, "deleting the arrays"),
        (
            "cached by CuPy",
            free,
            "new arrays, which reuse it, or `cupy.get_default_memory_pool().free_all_blocks()`",
        ),
    ]


def _jax(ordinal: int) -> list[Pool]:
    """The memory of JAX's allocator, if the program has set up its GPUs."""
    is_set_up = imported("jax._src.xla_bridge", "backends_are_initialized")
    if is_set_up is None or not reading.quietly(is_set_up):
        return []

    def sizes() -> tuple[int, int]:
        for gpu in sys.modules["jax"].local_devices(backend="gpu"):
            if gpu.local_hardware_id == ordinal:
                stats = gpu.memory_stats()
                used = stats["bytes_in_use"]
                return used, max(stats.get("pool_bytes", used), used) - used
        return 0, 0

    used, free = reading.quietly(sizes) or (0, 0)
    return [
        ("arrays of JAX", used, "deleting the arrays"),
        (
            "reserved by JAX",
            free,
            "the end of the process; XLA_PYTHON_CLIENT_PREALLOCATE=false reserves less",
        ),
    ]
