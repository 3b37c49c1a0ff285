"""A training that keeps each loss, and with it the autograd graph of each step."""

import torch
from torch import nn

import cyclescope


def train():
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))
    monitor = cyclescope.watch_growth(every=10, devices="any")
    history = []
    for _ in range(160):
        batch = torch.randn(256, 64)
        loss = (model(batch) - batch).square().mean()
        history.append(loss)
        monitor.step()
    print(monitor.headline)


train()
