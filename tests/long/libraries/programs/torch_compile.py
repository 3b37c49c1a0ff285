"""torch.compile: a compiled network is trained for two steps."""

import torch

DISTRIBUTION = "torch"


def run() -> list[float]:
    network = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    compiled = torch.compile(network)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    rows = torch.randn(4, 16)
    losses = []
    for _ in range(2):
        loss = compiled(rows).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses
