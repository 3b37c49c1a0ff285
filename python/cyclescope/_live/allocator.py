"""What PyTorch's caching allocator says of its memory."""

from __future__ import annotations

from typing import Any

from cyclescope._live.reading import Torch, is_using_cuda, quietly


def segments_of(torch: Torch, device: int) -> list[dict[str, Any]]:
    """The allocator's segments on a device.

    Raises:
        RuntimeError: If the allocator in use does not say (``cudaMallocAsync``).
    """
    try:
        # Without the recorded history, which may be large.
        listed = torch.cuda.memory_snapshot(include_traces=False)
    except TypeError:
        listed = torch.cuda.memory_snapshot()
    return [each for each in listed if each.get("device", device) == device]


def pinned_bytes(torch: Torch) -> int:
    """Pinned host memory that PyTorch's allocator holds, in use or cached; 0 if it does not say.

    How much of it is in use is not known: ``active_bytes`` of PyTorch 2.11 counts tensors that are
    deleted too, unless a stream used them (``CachingHostAllocatorImpl::free``).
    """
    stats = getattr(torch._C, "_cuda_hostMemoryStats", None)
    if stats is None or not is_using_cuda(torch):
        return 0
    held = (quietly(stats) or {}).get("allocated_bytes", {})
    return int(held.get("current", 0))


def line_of_block(torch: Torch, device: str, pointer: int) -> str | None:
    """``file:line`` that allocated memory of a GPU, if PyTorch records a history."""
    if not device.startswith("cuda") or not is_recording(torch):
        return None
    for segment in quietly(torch.cuda.memory_snapshot) or ():
        for block in segment["blocks"]:
            if block.get("address") == pointer:
                for frame in block.get("frames", ()):
                    # Frames of C++ have no file.
                    if frame["filename"] not in ("", "??") and not is_library(frame["filename"]):
                        return f"{frame['filename']}:{frame['line']}"
    return None


def is_recording(torch: Torch) -> bool:
    """True if PyTorch records a history of its allocations.

    PyTorch crashes if it is asked before it has initialised CUDA, as in a program that has JAX on
    the GPU.
    """
    return is_using_cuda(torch) and bool(quietly(torch._C._cuda_isHistoryEnabled))


def is_library(filename: str) -> bool:
    """True for the files of installed packages."""
    return "site-packages" in filename or "dist-packages" in filename
