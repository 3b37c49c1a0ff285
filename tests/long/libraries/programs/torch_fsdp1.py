"""FullyShardedDataParallel (FSDP1): two gloo ranks train a network for two steps."""

import torch
from ranks import group
from torch.distributed.fsdp import FullyShardedDataParallel

DISTRIBUTION = "torch"
RANKS = 2


def run() -> list[float]:
    with group():
        network = torch.nn.Sequential(
            torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
        )
        model = FullyShardedDataParallel(network, device_id=torch.device("cpu"))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(2):
            loss = model(torch.randn(4, 16)).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses
