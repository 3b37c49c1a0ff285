"""tensordict: a TensorDict stores a bound method of its own, with which it validates values."""

import torch
from tensordict import tensorclass


@tensorclass(frozen=True)
class Batch:
    image: torch.Tensor


def leak() -> None:
    Batch(image=torch.zeros(64, 4096), batch_size=[64])
