"""torchrl: a replay buffer and its storage refer to each other."""

import torch
from torchrl.data import LazyTensorStorage, ReplayBuffer


def filled() -> ReplayBuffer:
    buffer = ReplayBuffer(storage=LazyTensorStorage(64))
    buffer.extend(torch.zeros(64, 4096))
    return buffer


def leak() -> None:
    filled()


def remedied() -> None:
    filled()._storage._attached_entities.clear()
