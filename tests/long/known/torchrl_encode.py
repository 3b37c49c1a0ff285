"""torchrl: a spec stores one of its own bound methods."""

import torch
from torchrl.data import Bounded


def leak() -> None:
    Bounded(low=torch.zeros(2**18), high=torch.ones(2**18))


def remedied() -> None:
    del Bounded(low=torch.zeros(2**18), high=torch.ones(2**18)).encode
