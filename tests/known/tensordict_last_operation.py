"""tensordict: a TensorDict that is locked records the operation with itself, as a frozen class does."""

import torch
from tensordict import TensorDict, tensorclass


@tensorclass(frozen=True)
class Batch:
    image: torch.Tensor


def leak() -> None:
    Batch(image=torch.zeros(64, 4096), batch_size=[64])
    TensorDict({"image": torch.zeros(64, 4096)}, [64]).lock_()
