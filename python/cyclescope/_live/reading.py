"""What PyTorch holds in this process, read without running any of the program's code.

Everything goes by the type pointer and by PyTorch's own descriptors, with ``__torch_function__``
switched off; nothing here allocates memory on a device, initialises CUDA or imports PyTorch.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FrameType, GetSetDescriptorType
from typing import Any

_mro = type.__dict__["__mro__"].__get__
_namespace = type.__dict__["__dict__"].__get__

Torch = Any
"""The module ``torch``; typed so because cyclescope does not depend on it."""


@dataclass(frozen=True, slots=True)
class LiveTensor:
    """A tensor that Python sees, and its storage."""

    tensor: Any
    pointer: int
    bytes: int
    """Of the whole storage, which other tensors may share."""
    device: str
    dtype: str
    shape: tuple[int, ...]
    has_graph: bool
    """It has a ``grad_fn``."""
    is_parameter: bool
    """It is a leaf that wants a gradient."""

    @property
    def storage(self) -> tuple[str, int]:
        """What names the storage."""
        return self.device, self.pointer


def imported_torch() -> Torch | None:
    """PyTorch, if the program has imported it, and to the end."""
    torch = sys.modules.get("torch")
    spec = getattr(torch, "__spec__", None)
    if torch is None or getattr(spec, "_initializing", False) or not hasattr(torch, "_C"):
        return None
    return torch


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


# Tensors


@dataclass(frozen=True, slots=True)
class Census:
    """What of PyTorch's is alive: one pass over the objects of the collector."""

    tensors: list[LiveTensor]
    """Those with memory; several may share a storage."""
    nodes: list[Any]
    """Autograd nodes that Python sees, but not those of ``torch.autograd.Function``, which are
    Python objects wherever they are."""
    modules: list[Any]


def take_census(torch: Torch) -> Census:
    """List what is alive now."""
    tensors, nodes, modules = objects_of_types([torch.Tensor], _node_types(), [torch.nn.Module])
    found = []
    with torch._C.DisableTorchFunction():
        for tensor in tensors:
            read = read_tensor(torch, tensor)
            if read is not None:
                found.append(read)
    return Census(found, nodes, modules)


def objects_of_types(*kinds: list[type]) -> list[list[Any]]:
    """The objects of some kinds, each given by its types; their subtypes count too."""
    known: dict[int, int] = {}
    for number, pending in enumerate(kinds):
        pending = list(pending)
        while pending:
            cls = pending.pop()
            if id(cls) not in known:
                known[id(cls)] = number
                pending += type.__subclasses__(cls)
    found: list[list[Any]] = [[] for _ in kinds]
    for each in [each for each in gc.get_objects() if id(type(each)) in known]:
        found[known[id(type(each))]].append(each)
    return found


def _node_types() -> list[type]:
    """The classes of the nodes in C++, of those that Python has met."""
    return [
        cls
        for cls in type.__subclasses__(object)
        if type(cls) is type and "next_functions" in _namespace(cls)
    ]


def read_tensor(torch: Torch, tensor: Any) -> LiveTensor | None:
    """The tensor, if it has memory of its own. ``__torch_function__`` is to be off.

    None for what has no memory: of the device "meta", fake, freed, sparse, or a wrapper that
    implements ``__torch_dispatch__`` and would run Python code to answer.
    """
    base = torch._C.TensorBase
    kind = type(tensor)
    plain = kind is torch.Tensor or kind is torch.nn.Parameter
    try:
        if not plain and torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.Python):
            return None
        storage = base.untyped_storage(tensor)
        pointer, size = storage.data_ptr(), storage.nbytes()
        if not pointer or not size:
            return None
        has_graph = not base.is_leaf.__get__(tensor)
        return LiveTensor(
            tensor=tensor,
            pointer=pointer,
            bytes=size,
            device=str(storage.device),
            dtype=str(base.dtype.__get__(tensor)).removeprefix("torch."),
            shape=tuple(base.shape.__get__(tensor)),
            has_graph=has_graph,
            is_parameter=not has_graph and bool(base.requires_grad.__get__(tensor)),
        )
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return None


def attributes_of(module: Any) -> dict[str, Any]:
    """The instance dictionary, past any ``__getattr__``; empty where there is none."""
    kind = type(module)
    for cls in _mro(kind):
        own = _namespace(cls).get("__dict__")
        # A class may have made a property of it, which would run.
        if own is not None and type(own) is not GetSetDescriptorType:
            return {}
    try:
        found = object.__getattribute__(module, "__dict__")
    except (AttributeError, TypeError):
        return {}
    return found if type(found) is dict else {}


def optimizers_of(torch: Torch) -> list[Any]:
    """Every optimizer that is alive; without importing what makes them."""
    optimizer = sys.modules.get("torch.optim.optimizer")
    cls = getattr(optimizer, "Optimizer", None)
    return objects_of_types([cls])[0] if isinstance(cls, type) else []


def values_of(names: object) -> list[Any]:
    """The values of a dict, also of one that keeps an order of its own; empty for all else."""
    return list(dict.values(names)) if issubclass(type(names), dict) else []  # type: ignore[arg-type]


def tensors_within(torch: Torch, container: object, depth: int = 3) -> Iterable[Any]:
    """The tensors in nested built-in containers, of which each is looked into once."""
    seen = {id(container)}
    level = [container]
    for _ in range(depth):
        below: list[object] = []
        for each in level:
            for value in _items_of(each):
                if issubclass(type(value), torch.Tensor):
                    yield value
                elif id(value) not in seen and issubclass(type(value), (list, tuple, dict)):
                    seen.add(id(value))
                    below.append(value)
        level = below


def _items_of(container: object) -> Iterable[object]:
    kind = type(container)
    if issubclass(kind, list):
        return list.__iter__(container)  # type: ignore[arg-type]
    if issubclass(kind, tuple):
        return tuple.__iter__(container)  # type: ignore[arg-type]
    return values_of(container)  # also of a `defaultdict`, as optimizers keep their state in


# Threads

_BACKWARD = {"_engine_run_backward", "backward", "grad"}


def is_backward_running(torch: Torch) -> bool:
    """True if some thread is in a backward pass.

    Its nodes are being executed, and perhaps released, by threads that do not hold the
    interpreter's lock, so what they saved must not be read.
    """
    current = getattr(torch._C, "_current_graph_task_id", None)
    if current is not None and current() != -1:
        return True
    return any(_is_in_backward(frame) for frame in sys._current_frames().values())


def _is_in_backward(frame: FrameType | None) -> bool:
    while frame is not None:
        code = frame.f_code
        if code.co_name in _BACKWARD and "autograd" in code.co_filename:
            return True
        frame = frame.f_back
    return False


def quietly(function: Callable[..., Any], *arguments: object) -> Any | None:
    """What a function of PyTorch's answers; None where it refuses."""
    try:
        return function(*arguments)
    except Exception:
        return None
