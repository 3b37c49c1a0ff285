"""skorch: a classifier is fitted for two epochs, with callbacks, and predicts."""

import numpy
import torch
from skorch import NeuralNetClassifier
from skorch.callbacks import EpochScoring, LRScheduler

DISTRIBUTION = "skorch"


def run() -> list[float]:
    inputs = numpy.random.rand(64, 16).astype("float32")
    labels = numpy.arange(64) % 3
    network = NeuralNetClassifier(
        torch.nn.Linear(16, 3),
        criterion=torch.nn.CrossEntropyLoss,
        max_epochs=2,
        lr=0.1,
        verbose=0,
        callbacks=[LRScheduler("StepLR", step_size=1), EpochScoring("accuracy")],
    )
    network.fit(inputs, labels)
    return [float(network.predict_proba(inputs)[:, 0].sum())]
