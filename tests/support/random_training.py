"""Random programs that train: modules in cycles, with gradients, optimizers and graphs.

What the cycles hold is found out by doing: cutting each cycle, with the collector off, and asking
PyTorch's weak handles which storages went.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import torch
from torch import nn

# Its annotations are not all there.
Storage: Any = torch.UntypedStorage

SIZE = 64


class Owner(nn.Module):
    """A module that may refer to itself, and is dropped when a program ends."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.ones(SIZE) for _ in range(random.randint(1, 3)))
        # Else a graph that is alive hides this one: no tensor of it is Python's alone.
        self.certain = torch.ones(3)
        self.kept: list[Any] = []
        self.me: list[Any] = []

    def leaf(self, random: Random) -> Any:
        return random.choice(list(self.weights))


class First(Owner):
    pass


class Second(Owner):
    pass


class Third(Owner):
    pass


def product(owner: Owner) -> Any:
    return sum((w.exp() for w in owner.weights), torch.zeros(SIZE)).sum()


class Training:
    """The objects of a program; ``live`` is what is still referred to in the end."""

    def __init__(self, number: int, unread: bool = True) -> None:
        random = Random(number)
        self.live: list[Any] = []
        kinds = random.sample([First, Second, Third], k=random.randint(1, 3))
        self.owners = [kind(random) for kind in kinds]
        self.flat = torch.zeros(4 * SIZE)
        actions = [action for action in ACTIONS if unread or action not in UNREAD]
        for _ in range(random.randint(1, 8)):
            random.choice(actions)(self, random.choice(self.owners), random)
        for owner in self.owners:
            if random.random() < 0.8:
                owner.me.append(owner)
        if random.random() < 0.3:
            self.live.append(self.flat)
        del self.flat

    def tensors(self) -> Iterator[torch.Tensor]:
        """All tensors of the owners but those that only an autograd graph has."""
        for owner in self.owners:
            for tensor in [*owner.parameters(), owner.certain, *owner.kept]:
                if isinstance(tensor, torch.optim.Optimizer):
                    for state in tensor.state.values():
                        yield from (it for it in state.values() if isinstance(it, torch.Tensor))
                    continue
                for _ in range(3):
                    yield from parts(tensor)
                    if not (tensor.is_leaf or tensor.retains_grad) or tensor.grad is None:
                        break
                    tensor = tensor.grad


def parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    if tensor.is_sparse:
        plain = tensor.detach()
        return [plain._indices(), plain._values()]
    return [tensor]


def backward(program: Training, owner: Owner, random: Random) -> None:
    product(owner).backward()


def touched(program: Training, owner: Owner, random: Random) -> None:
    product(owner).backward()
    assert all(w.grad is not None for w in owner.weights)


def assigned(program: Training, owner: Owner, random: Random) -> None:
    owner.leaf(random).grad = torch.ones(SIZE)


def shared(program: Training, owner: Owner, random: Random) -> None:
    owner.leaf(random).grad = random.choice(program.owners).leaf(random).grad


def bucket(program: Training, owner: Owner, random: Random) -> None:
    part = random.randrange(4)
    owner.leaf(random).grad = program.flat[part * SIZE : (part + 1) * SIZE]


def listed(program: Training, owner: Owner, random: Random) -> None:
    gradient = random.choice(program.owners).leaf(random).grad
    if gradient is not None:
        random.choice([owner.kept, program.live]).append(gradient)


def viewed(program: Training, owner: Owner, random: Random) -> None:
    gradient = random.choice(program.owners).leaf(random).grad
    if gradient is not None:
        random.choice([owner.kept, program.live]).append(gradient.detach()[1:])


def borrowed(program: Training, owner: Owner, random: Random) -> None:
    leaf = owner.leaf(random)
    random.choice([random.choice(program.owners).kept, program.live]).append(leaf)


def optimized(program: Training, owner: Owner, random: Random) -> None:
    made = random.choice([torch.optim.SGD, torch.optim.Adam])
    optimizer = made(
        owner.weights, lr=0.1, **({"momentum": 0.9} if made is torch.optim.SGD else {})
    )
    product(owner).backward()
    optimizer.step()
    if random.random() < 0.5:
        optimizer.zero_grad(set_to_none=random.random() < 0.5)
    owner.kept.append(optimizer)


def cleared(program: Training, owner: Owner, random: Random) -> None:
    owner.zero_grad(set_to_none=random.random() < 0.5)


def sparse(program: Training, owner: Owner, random: Random) -> None:
    owner.layer = nn.Embedding(SIZE, 2, sparse=True)
    owner.layer(torch.tensor([1, 3])).sum().backward()


def loss_kept(program: Training, owner: Owner, random: Random) -> None:
    loss = product(owner)
    if random.random() < 0.7:
        loss.backward()
    # What only a graph has, of which nothing else is left, is not seen.
    random.choice([owner.kept, program.live]).append(loss)


def retained(program: Training, owner: Owner, random: Random) -> None:
    out = sum((w * 2 for w in owner.weights), torch.zeros(SIZE))
    out.retain_grad()
    out.sum().backward()
    owner.kept.append(out)


def twice(program: Training, owner: Owner, random: Random) -> None:
    owner.zero_grad()
    (torch.ones(SIZE) * owner.weights[0] ** 3).sum().backward(create_graph=True)
    owner.weights[0].grad.sum().backward()


def hooked(program: Training, owner: Owner, random: Random) -> None:
    owner.leaf(random).register_hook(lambda gradient: None)


ACTIONS: list[Callable[[Training, Owner, Random], None]] = [
    backward,
    touched,
    assigned,
    shared,
    bucket,
    listed,
    viewed,
    borrowed,
    optimized,
    cleared,
    sparse,
    loss_kept,
    retained,
    twice,
    hooked,
]
UNREAD = [sparse, loss_kept, retained, twice]
"""These leave gradients that a watch does not read: C++ may be using them, or they are sparse."""


class Storages:
    """Weak handles of the storages of tensors, with their sizes."""

    def __init__(self, tensors: Iterator[torch.Tensor]) -> None:
        self._handles: dict[int, tuple[int, int]] = {}
        for tensor in tensors:
            storage: Any = tensor.untyped_storage()
            if storage.nbytes():
                handle = storage._weak_ref()
                if storage.data_ptr() in self._handles:
                    Storage._free_weak_ref(handle)
                else:
                    self._handles[storage.data_ptr()] = (handle, storage.nbytes())

    def alive(self) -> int:
        """Bytes of those that are there."""
        expired = Storage._expired
        return sum(size for handle, size in self._handles.values() if not expired(handle))

    def forget(self) -> None:
        for handle, _ in self._handles.values():
            Storage._free_weak_ref(handle)


def bytes_of_cycles(number: int, unread: bool = True) -> int:
    """What is freed when the cycles of a program are cut, after it was dropped.

    The collector is to be off.
    """
    program = Training(number, unread)
    storages = Storages(program.tensors())
    cuts = [owner.me for owner in program.owners]
    live = program.live
    del program
    before = storages.alive()
    for me in cuts:
        me.clear()
    cuts.clear()
    freed = before - storages.alive()
    storages.forget()
    del live
    return freed
