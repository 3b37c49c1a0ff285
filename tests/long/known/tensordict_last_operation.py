"""tensordict: a TensorDict that is locked, as a frozen class does it, records that with itself."""

import torch
from tensordict import TensorDict, tensorclass


@tensorclass(frozen=True)
class Batch:
    image: torch.Tensor


def leak() -> None:
    Batch(image=torch.zeros(64, 4096), batch_size=[64])
    TensorDict({"image": torch.zeros(64, 4096)}, [64]).lock_()
