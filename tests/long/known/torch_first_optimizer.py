"""torch.optim: what the first optimizer imports keeps a frame, and with it those of its callers."""

import torch


def leak() -> None:
    weight = torch.nn.Parameter(torch.zeros(2**18))
    torch.optim.SGD([weight], lr=0.1)


def remedied() -> None:
    import_where_no_tensors_are()
    leak()


def import_where_no_tensors_are() -> None:
    import torch._dynamo  # noqa: F401
