"""torch.fx: a network is traced, changed and run."""

import torch

DISTRIBUTION = "torch"
MADE_BY = ["torch"]


def run() -> list[float]:
    network = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
    traced = torch.fx.symbolic_trace(network)
    (relu,) = (node for node in traced.graph.nodes if node.target == "1")
    relu.target = "2"
    traced.recompile()
    return [float(traced(torch.randn(4, 16)).sum())]
