"""PyTorch's caching allocator in numbers, and whether a request would fit if memory were freed.

The allocator takes memory from CUDA in segments and cuts them into blocks. When a request does not
fit, it first gives back every segment that is wholly free and tries again, so at an
out-of-memory error what is reserved and not allocated lies between blocks in use
(``c10/cuda/CUDACachingAllocator.cpp``, ``malloc``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cyclescope._live.reading import Torch, quietly

EXPANDABLE_PIECE = 20 * 2**20
"""Expandable segments are mapped and unmapped in pieces of this size."""

LARGE = 2**20
"""Requests above this come from segments of their own kind, ``large``."""


@dataclass(frozen=True)
class Segment:
    """A piece of memory that the allocator has from CUDA."""

    bytes: int
    is_large: bool
    is_expandable: bool
    stream: int
    is_private: bool
    """It belongs to a CUDA graph, or another pool of its own, which nothing else may use."""
    blocks: tuple[tuple[int, int, bool], ...]
    """Address, size, and whether it is in use; in order, without gaps."""


@dataclass(frozen=True)
class Numbers:
    """The state of a device's memory when a request failed."""

    device: int
    requested: int
    """Bytes; as the allocator rounded them up."""
    limit: int
    """Bytes that this process may take: the whole device, or the fraction of it that was set."""
    free: int
    """Bytes that the driver says are free, for whoever takes them."""
    reserved: int
    """Bytes that the allocator has from CUDA."""
    allocated: int
    """Bytes of blocks in use."""
    elsewhere: int | None
    """Bytes that neither are free nor the allocator's: other processes, CUDA itself, libraries."""
    largest_free_block: int
    """The largest block that is reserved and not in use."""
    free_in_blocks: int
    """Bytes in such blocks that a request of this size could take if they lay together."""
    private: int
    """Bytes of segments that only a CUDA graph may use."""

    @property
    def headroom(self) -> int:
        """Bytes that the allocator could still take from CUDA."""
        return max(0, min(self.free, self.limit - self.reserved))


def segments_of(torch: Torch, device: int) -> list[Segment]:
    """The allocator's segments on a device.

    Raises:
        RuntimeError: If the allocator in use does not say (``cudaMallocAsync``).
    """
    try:
        # Without the recorded history, which may be large.
        listed = torch.cuda.memory_snapshot(include_traces=False)
    except TypeError:
        listed = torch.cuda.memory_snapshot()
    return [_segment(each) for each in listed if each.get("device", device) == device]


def _segment(listed: Mapping[str, Any]) -> Segment:
    address = int(listed.get("address", 0))
    blocks = []
    for block in listed["blocks"]:
        size = int(block["size"])
        # Older versions give no address for each block: they lie side by side.
        address = int(block.get("address", address))
        blocks.append((address, size, block["state"] != "inactive"))
        address += size
    return Segment(
        bytes=int(listed["total_size"]),
        is_large=listed.get("segment_type", "large") == "large",
        is_expandable=bool(listed.get("is_expandable", False)),
        stream=int(listed.get("stream", 0)),
        is_private=tuple(listed.get("segment_pool_id", (0, 0))) != (0, 0),
        blocks=tuple(blocks),
    )


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


def numbers(
    torch: Torch, segments: Iterable[Segment], device: int, requested: int, limit: int, free: int
) -> Numbers:
    """What the observer was called with, and what the allocator adds to it."""
    stats = torch._C._cuda_memoryStats(device)
    reserved = int(stats["reserved_bytes"]["all"]["current"])
    allocated = int(stats["allocated_bytes"]["all"]["current"])
    properties = quietly(torch.cuda.get_device_properties, device)
    total = getattr(properties, "total_memory", None)
    segments = list(segments)
    unused = [
        size
        for segment in segments
        if not segment.is_private and segment.is_large == (requested > LARGE)
        for _, size, in_use in segment.blocks
        if not in_use
    ]
    return Numbers(
        device=device,
        requested=requested,
        limit=limit,
        free=free,
        reserved=reserved,
        allocated=allocated,
        elsewhere=None if total is None else max(0, int(total) - free - reserved),
        largest_free_block=max(unused, default=0),
        free_in_blocks=sum(unused),
        private=sum(segment.bytes for segment in segments if segment.is_private),
    )


def would_fit(
    numbers: Numbers,
    segments: Iterable[Segment],
    freed: Mapping[int, int] | Iterable[int],
    stream: int | None = None,
) -> bool:
    """True if the request would fit once the blocks at some addresses were free.

    As the allocator would do it: neighbouring free blocks become one, a request takes a block of
    its stream that is large enough, and segments without a block in use go back to CUDA.

    Args:
        numbers: The request and the state.
        segments: The segments of the device.
        freed: Addresses within the blocks that would be free; of none, an address is unknown.
        stream: The stream of the request; if not given, blocks of any stream are taken for its own.
    """
    addresses = sorted(freed)
    headroom = numbers.headroom
    for segment in segments:
        if segment.is_private:
            continue
        runs, in_use = _free_runs(segment, addresses)
        if segment.is_expandable:
            headroom += sum(run - run % EXPANDABLE_PIECE for run in runs)
        elif not in_use:
            headroom += segment.bytes
        usable = segment.is_large == (numbers.requested > LARGE) and stream in (
            None,
            segment.stream,
        )
        if usable and max(runs, default=0) >= numbers.requested:
            return True
    return headroom >= numbers.requested


def _free_runs(segment: Segment, addresses: list[int]) -> tuple[list[int], bool]:
    """The sizes of the free stretches, and whether anything is in use still."""
    from bisect import bisect_left

    runs: list[int] = []
    run = 0
    any_in_use = False
    for address, size, in_use in segment.blocks:
        first = bisect_left(addresses, address)
        freed = first < len(addresses) and addresses[first] < address + size
        if in_use and not freed:
            any_in_use = True
            if run:
                runs.append(run)
            run = 0
        else:
            run += size
    if run:
        runs.append(run)
    return runs, any_in_use
