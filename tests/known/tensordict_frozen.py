"""tensordict: an object of a frozen tensorclass records the operation that made it, with itself."""

import torch
from tensordict import tensorclass


@tensorclass(frozen=True)
class Batch:
    image: torch.Tensor


def leak() -> None:
    Batch(image=torch.zeros(64, 4096), batch_size=[64])
