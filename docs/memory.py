"""Prints ``memory()`` as ``docs/live-memory.md`` has it: a training on a GPU that keeps losses."""

from __future__ import annotations

import gc

import torch

import cyclescope


class Trainer:
    """An object whose callback captures it, with a batch."""

    def __init__(self) -> None:
        self.batch = torch.empty(100, 2**20, device="cuda")
        self.on_step = lambda: self.batch.sum()


gc.disable()
model = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096) for _ in range(4)]).cuda()
optimizer = torch.optim.Adam(model.parameters())
losses = []
for _ in range(8):
    loss = model(torch.randn(2048, 4096, device="cuda")).sum()
    loss.backward()
    optimizer.step()
    losses.append(model(torch.randn(2048, 4096, device="cuda")).tanh().sum())
del loss
Trainer()
print(cyclescope.memory())
