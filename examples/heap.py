"""The owners of all memory, in a training that keeps its losses."""

import torch
from torch import nn

import cyclescope

model = nn.Sequential(nn.Linear(256, 512), nn.Tanh(), nn.Linear(512, 256))
optimizer = torch.optim.Adam(model.parameters())
history = []
for _ in range(10):
    batch = torch.randn(512, 256)
    loss = (model(batch) - batch).square().mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
    history.append(loss)
del batch, loss

print(cyclescope.heap())
