"""pytest: `with pytest.raises(X) as e` keeps the frame, and that keeps `e`."""

import pytest
import torch


def fails() -> None:
    raise ValueError("no")


def leak() -> None:
    weights = torch.zeros(2**18)
    with pytest.raises(ValueError, match="no") as e:
        fails()
    assert weights.sum() == 0
    assert e.type is ValueError


def remedied() -> None:
    weights = torch.zeros(2**18)
    with pytest.raises(ValueError, match="no") as e:
        fails()
    assert weights.sum() == 0
    assert e.type is ValueError
    del e
