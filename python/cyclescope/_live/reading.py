"""The state of PyTorch in this process: is it imported, and does it use CUDA?

Nothing here allocates memory on a device, initialises CUDA or imports PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cyclescope._handlers import is_of_handler

Torch = Any
"""The module ``torch``; typed so because cyclescope does not depend on it."""


def has_cuda(torch: Torch) -> bool:
    """True if this PyTorch was built for CUDA (or ROCm, which it calls the same)."""
    return hasattr(torch._C, "_cuda_memoryStats") and hasattr(torch, "cuda")


def is_using_cuda(torch: Torch) -> bool:
    """True if the process has initialised CUDA and may use it: a forked child may not."""
    return (
        has_cuda(torch) and bool(torch.cuda.is_initialized()) and not torch._C._cuda_isInBadFork()
    )


def is_capturing(torch: Torch) -> bool:
    """True while the current stream of this thread records a CUDA graph."""
    return is_using_cuda(torch) and bool(torch._C._cuda_isCurrentStreamCapturing())


def quietly(function: Callable[..., Any], *arguments: object) -> Any | None:
    """What a function of PyTorch's answers; None where it refuses."""
    try:
        return function(*arguments)
    except Exception as error:
        if is_of_handler(error):
            raise
        return None
