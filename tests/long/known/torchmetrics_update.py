"""torchmetrics: the wrapped `update` of a metric captures it, also where its `compute` is gone."""

import torch
import torchmetrics


def leak() -> None:
    metric = torchmetrics.CatMetric()
    metric.update(torch.zeros(2**18))
    del metric.compute


def remedied() -> None:
    metric = torchmetrics.CatMetric()
    metric.update(torch.zeros(2**18))
    del metric.compute
    metric.reset()
