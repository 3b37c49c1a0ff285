"""opacus: the layers of a private module have hooks that are its bound methods."""

import torch
from opacus import GradSampleModule


def private() -> GradSampleModule:
    return GradSampleModule(torch.nn.Sequential(torch.nn.Linear(512, 512)))


def leak() -> None:
    private()


def remedied() -> None:
    private().to_standard_module()
