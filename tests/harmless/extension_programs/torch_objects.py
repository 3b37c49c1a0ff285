"""PyTorch's tensors, modules and data loaders."""

from __future__ import annotations

import gc
from typing import Any

import numpy

from extension_programs.holders import Holder, Loud, Told, program


def loaded(method: str, persistent: bool = False) -> None:
    import torch
    from torch.utils.data import DataLoader, _utils

    # A collector that meets an iterator breaks its queues, so the workers never hear of the end:
    # PyTorch waits this long for each of them, 5 seconds otherwise, and then ends them.
    _utils.MP_STATUS_CHECK_INTERVAL = 0.5
    samples: Any = Samples()
    holder = Holder("data set")
    holder.things = samples
    samples.holder = holder
    loader = DataLoader(
        samples,
        num_workers=1 if method == "spawn" else 2,  # which imports PyTorch anew in each
        multiprocessing_context=method,
        persistent_workers=persistent,
        worker_init_fn=leave_the_heap,
    )
    samples.loader = loader
    for _ in range(2 if persistent else 1):
        print(sorted(map(float, torch.cat(list(loader)))))
    iterator = iter(loader)
    print(float(next(iterator)) in range(100))
    samples.iterator = iterator
    samples.tensor = torch.zeros(5, requires_grad=True)
    samples.told = Told("samples")


def leave_the_heap(worker: int) -> None:
    """Full collections in a worker pass PyTorch's modules over, and take no second each."""
    gc.freeze()


class Samples:
    """A data set whose workers make garbage and collect it, too."""

    def __len__(self) -> int:
        return 6

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __getitem__(self, index: int) -> float:
        ring: list[Any] = [numpy.zeros(9)]
        ring.append(ring)
        del ring
        return index + 100.0 * (gc.collect() < 1)


@program("torch")
def loader_fork() -> None:
    loaded("fork")


@program("torch")
def loader_spawn() -> None:
    loaded("spawn")


@program("torch")
def loader_persistent() -> None:
    loaded("fork", persistent=True)


@program("torch")
def tensors() -> None:
    import torch

    leaf = torch.zeros(8, requires_grad=True)
    hooked: Any = Loud("hook")
    hooked.things = leaf * 2
    hooked.things.register_hook(lambda gradient, me=hooked: None)
    view: Any = Holder("view")
    view.things = torch.from_numpy(view.array)
    view.things.owner = view
    module: Any = torch.nn.Linear(3, 3)
    module.holder = Holder("module", module)
    module.register_forward_hook(lambda *_, me=module: None)
    print(tuple(module(torch.ones(3)).shape))
    storage: Any = Holder("storage", leaf.untyped_storage(), leaf.detach().numpy())
    storage.more = None
