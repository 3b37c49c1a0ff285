"""torch.export: a network is exported, decomposed and run."""

import torch

DISTRIBUTION = "torch"
MADE_BY = ["torch"]


def run() -> list[float]:
    network = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))
    rows = torch.randn(4, 16)
    batch = torch.export.Dim("batch", min=2, max=8)
    program = torch.export.export(network, (rows,), dynamic_shapes=({0: batch},))
    lower = program.run_decompositions()
    return [float(program.module()(rows).sum()), float(lower.module()(rows[:2]).sum())]
