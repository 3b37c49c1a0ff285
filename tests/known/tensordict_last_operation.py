"""tensordict: a TensorDict that is locked, as one of a frozen class is, records that with itself."""

import torch
from tensordict import TensorDict, tensorclass


@tensorclass(frozen=True)
class Batch:
    image: torch.Tensor


def leak() -> None:
    Batch(image=torch.zeros(64, 4096), batch_size=[64])
    TensorDict({"image": torch.zeros(64, 4096)}, [64]).lock_()
