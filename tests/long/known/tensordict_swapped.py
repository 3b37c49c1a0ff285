"""tensordict: parameters that were swapped into a module record the operation, with themselves."""

import torch
from tensordict import TensorDict


def swapped() -> TensorDict:
    module = torch.nn.Linear(512, 512)
    parameters = TensorDict.from_module(module)
    with parameters.to_module(module):
        module(torch.zeros(1, 512))
    return parameters


def leak() -> None:
    swapped()


def remedied() -> None:
    swapped()._last_op = None
