"""torchmetrics: a metric stores wrapped methods of its own that capture it."""

import torch
import torchmetrics


def leak() -> None:
    metric = torchmetrics.CatMetric()
    metric.update(torch.zeros(2**18))


def remedied() -> None:
    metric = torchmetrics.CatMetric()
    metric.update(torch.zeros(2**18))
    metric.reset()
