"""torch.fx: a traced module and its graph refer to each other."""

import torch


def leak() -> None:
    torch.fx.symbolic_trace(torch.nn.Linear(512, 512))
