"""torch.jit.trace: a network is traced and run."""

import torch

DISTRIBUTION = "torch"
MADE_BY = ["torch"]


def run() -> list[float]:
    network = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Linear(8, 1))
    rows = torch.randn(4, 16)
    return [float(torch.jit.trace(network, rows)(rows).sum())]
