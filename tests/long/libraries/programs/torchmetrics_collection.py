"""torchmetrics: a collection of metrics is updated and computed."""

import torch
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

DISTRIBUTION = "torchmetrics"
MADE_BY = ["torchmetrics"]


def run() -> list[float]:
    metrics = MetricCollection(
        [MulticlassAccuracy(num_classes=4), MulticlassF1Score(num_classes=4)]
    )
    for _ in range(2):
        metrics.update(torch.randn(8, 4), torch.randint(0, 4, (8,)))
    return [float(value) for value in metrics.compute().values()]
