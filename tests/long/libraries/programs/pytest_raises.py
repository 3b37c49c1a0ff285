"""pytest: `with pytest.raises(X) as e` in a function that has a tensor."""

import pytest
import torch

DISTRIBUTION = "pytest"
MADE_BY = ["pytest"]


def run() -> list[float]:
    weights = torch.ones(2**10)
    with pytest.raises(ValueError, match="no") as raised:
        raise ValueError("no")
    return [float(weights.sum()), float(raised.type is ValueError)]
