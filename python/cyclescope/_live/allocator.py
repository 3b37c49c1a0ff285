"""What PyTorch's caching allocator says of its memory."""

from __future__ import annotations

from typing import Any

from cyclescope._live.reading import Torch, quietly


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


def line_of_block(torch: Torch, device: str, pointer: int) -> str | None:
    """``file:line`` that allocated memory of a GPU, if PyTorch records a history."""
    if not device.startswith("cuda") or not quietly(torch._C._cuda_isHistoryEnabled):
        return None
    for segment in quietly(torch.cuda.memory_snapshot) or ():
        for block in segment["blocks"]:
            if block.get("address") == pointer:
                for frame in block.get("frames", ()):
                    # Frames of C++ have no file.
                    if frame["filename"] not in ("", "??") and not is_library(frame["filename"]):
                        return f"{frame['filename']}:{frame['line']}"
    return None


def is_library(filename: str) -> bool:
    """True for the files of installed packages."""
    return "site-packages" in filename or "dist-packages" in filename
