"""torch.nn.utils.parametrizations.weight_norm: the module gets a class whose property captures it."""

import torch
from torch.nn.utils.parametrizations import weight_norm


def leak() -> None:
    weight_norm(torch.nn.Linear(512, 512))
