"""torch.nn.utils.parametrizations: a network with weight_norm is trained for a step, and pruned."""

import torch
from torch.nn.utils import prune
from torch.nn.utils.parametrizations import weight_norm

DISTRIBUTION = "torch"
MADE_BY = ["torch"]


def run() -> list[float]:
    layer = weight_norm(torch.nn.Linear(16, 8))
    loss = layer(torch.randn(4, 16)).pow(2).mean()
    loss.backward()
    other = torch.nn.Linear(16, 8)
    prune.l1_unstructured(other, "weight", amount=0.5)
    return [loss.item(), float(other(torch.randn(4, 16)).sum())]
