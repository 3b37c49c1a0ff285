"""jaxtyping: what decorates an inner function refers to itself by name."""

import torch
from jaxtyping import jaxtyped


def leak() -> None:
    weights = torch.zeros(2**18)

    @jaxtyped(typechecker=lambda function: function)
    def scale(x: float) -> torch.Tensor:
        return weights * x

    scale(2.0)
