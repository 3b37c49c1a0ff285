"""torch.nn.utils.parametrizations: a module gets a class of its own whose property captures it."""

import torch
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.parametrize import remove_parametrizations


def leak() -> None:
    weight_norm(torch.nn.Linear(512, 512))


def remedied() -> None:
    remove_parametrizations(weight_norm(torch.nn.Linear(512, 512)), "weight")
