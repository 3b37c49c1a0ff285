"""Networks whose autograd graphs keep memory that no Python tensor shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

WIDTH = 64

NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "dropout": (
        lambda: nn.Sequential(
            nn.Linear(WIDTH, WIDTH), nn.Dropout(), nn.LayerNorm(WIDTH), nn.GELU()
        ),
        (32, WIDTH),
    ),
    "lstm": (lambda: nn.LSTM(WIDTH, WIDTH), (8, 4, WIDTH)),
    "encoder": (lambda: nn.TransformerEncoderLayer(WIDTH, 4, 128), (16, 2, WIDTH)),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.MaxPool2d(2), nn.Dropout()),
        (4, 3, 16, 16),
    ),
}
"""How to make one, and the shape of a batch."""


def bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    """The bytes of some tensors and of all that their graphs have saved."""
    tensors = list(tensors)
    storages: dict[int, int] = {}

    def add(tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()

    seen: set[Any] = set()
    pending: list[Any] = [tensor.grad_fn for tensor in tensors]
    for tensor in tensors:
        add(tensor)
    while pending:
        function = pending.pop()
        if function is None or function in seen:
            continue
        seen.add(function)
        pending += [following for following, _ in function.next_functions]
        for name in dir(function):
            if name.startswith("_raw_saved_"):
                saved = getattr(function, name)
                for each in saved if isinstance(saved, tuple) else [saved]:
                    if each.data is not None:
                        add(each.data)
    return sum(storages.values())
