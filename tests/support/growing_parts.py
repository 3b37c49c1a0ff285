"""What programs whose memory grows, and those that look alike, are made of."""

from __future__ import annotations

import collections
from collections.abc import Callable

import numpy as np
import torch

OnStep = Callable[[], object]
Program = Callable[[int, OnStep], None]
Tensor = torch.Tensor

WIDTH = 64


def network() -> torch.nn.Module:
    """Two layers with something between them."""
    return torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, WIDTH)
    )


def block(kib: int = 16) -> Tensor:
    """A tensor of this size."""
    return torch.ones(kib * 256)


def train(net: torch.nn.Module, optimizer: torch.optim.Optimizer, size: int = 32) -> Tensor:
    """One step of training; the output."""
    optimizer.zero_grad()
    output: Tensor = net(torch.ones(size, WIDTH))
    output.square().mean().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return output


class Trainer:
    """Keeps what it is told to."""

    def __init__(self) -> None:
        self.net = network()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-4)
        self.outputs: list[Tensor] = []
        self.losses: list[Tensor] = []
        self.cache: dict[object, Tensor] = {}
        self.errors: dict[int, Exception] = {}
        self.table: np.ndarray = np.empty(0, object)
        self.window: collections.deque[Tensor] = collections.deque()
        self.hooks: list[Callable[[], Tensor]] = []

    def output(self) -> Tensor:
        """The output of one step."""
        return train(self.net, self.optimizer)


class Decoder:
    """Keeps keys of all tokens."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None

    def decode(self) -> None:
        """One token more."""
        token = torch.ones(2, 1, 1024)
        self.keys = token if self.keys is None else torch.cat([self.keys, token], dim=1)


def fail(kib: int = 16, depth: int = 0) -> None:
    """Raises an exception whose traceback keeps a tensor."""
    batch = block(kib)
    if depth:
        fail(1, depth - 1)
    raise ValueError(len(batch))


def fail_with(batch: Tensor) -> None:
    """Raises an exception whose traceback keeps a tensor that is given."""
    raise ValueError(len(batch))
