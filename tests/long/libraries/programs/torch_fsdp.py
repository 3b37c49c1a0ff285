"""fully_shard (FSDP2): two gloo ranks train a network for two steps."""

import torch
from ranks import group
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

DISTRIBUTION = "torch"
MADE_BY = ["torch"]
RANKS = 2


def run() -> list[float]:
    with group():
        mesh = init_device_mesh("cpu", (2,))
        network = torch.nn.Sequential(
            torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
        )
        for layer in network:
            fully_shard(layer, mesh=mesh)
        fully_shard(network, mesh=mesh)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        losses = []
        for _ in range(2):
            loss = network(torch.randn(4, 16)).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses
