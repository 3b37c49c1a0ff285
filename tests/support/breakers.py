"""Cycles whose finalizers break them: what is suspended is closed, or a ``__del__`` acts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import numpy
import pytest

from .marks import HAS_TORCH, needs_torch

if HAS_TORCH:
    import torch

FRAMEWORKS = [
    "numpy",
    pytest.param("torch", marks=needs_torch),
]


def buffer(framework: str) -> Any:
    if framework == "numpy":
        return numpy.zeros(1000, dtype=numpy.float64)
    return torch.zeros(1000, dtype=torch.float64)


class Owner:
    """Owns something suspended that refers back to it."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.suspended: Any = None

    def generate(self) -> Iterator[int]:
        yield len(self.tensor)

    async def work(self) -> int:
        await Never()
        return len(self.tensor)

    async def generate_async(self) -> AsyncIterator[int]:
        yield len(self.tensor)


class Never:
    def __await__(self) -> Generator[None, None, None]:
        yield


def suspended_generator(tensor: Any) -> None:
    owner = Owner(tensor)
    owner.suspended = owner.generate()
    next(owner.suspended)


def suspended_coroutine(tensor: Any) -> None:
    owner = Owner(tensor)
    owner.suspended = owner.work()
    owner.suspended.send(None)


def suspended_async_generator(tensor: Any) -> None:
    owner = Owner(tensor)
    owner.suspended = owner.generate_async()
    with pytest.raises(StopIteration):
        owner.suspended.asend(None).send(None)


class LetsGo(Owner):
    """Its finalizer breaks the cycle."""

    def __del__(self) -> None:
        self.suspended = None


def finalizer_lets_go_of_the_cycle(tensor: Any) -> None:
    one, other = LetsGo(tensor), Owner(None)
    one.suspended, other.suspended = other, one


class Drops(Owner):
    """Its finalizer leaves the cycle and drops what it held."""

    def __del__(self) -> None:
        self.tensor = None


def finalizer_drops_the_buffer(tensor: Any) -> None:
    one, other = Drops(tensor), Owner(None)
    one.suspended, other.suspended = other, one


BREAKERS = [
    suspended_generator,
    suspended_coroutine,
    suspended_async_generator,
    finalizer_lets_go_of_the_cycle,
    finalizer_drops_the_buffer,
]
