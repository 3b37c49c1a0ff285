"""torch.utils._pytree: the inner function of tree_flatten keeps itself, and its is_leaf."""

import torch
from torch.utils._pytree import tree_flatten


def leak() -> None:
    batch = [torch.zeros(2**18)]
    tree_flatten(batch, is_leaf=lambda node: node is batch)


def remedied() -> None:
    tree_flatten([torch.zeros(2**18)], is_leaf=torch.is_tensor)
