"""What a look at live memory leaves in the program: what docs/safety.md says, and no more."""

from __future__ import annotations

import collections
import gc
from collections.abc import Callable

import pytest

import cyclescope

try:
    import torch
except ImportError:
    pytest.skip("what is left behind is PyTorch's", allow_module_level=True)

LAYERS = 4


def sample() -> None:
    with cyclescope.LeakMonitor(every=1, devices="any", max_share=float("inf")) as monitor:
        monitor.step()


def count() -> dict[str, int]:
    """The objects of PyTorch's and instances of other classes, by type."""
    gc.collect()
    types = collections.Counter(type(each) for each in gc.get_objects())
    return {
        each.__name__: number for each, number in types.items() if "torch" in str(each.__module__)
    }


def more(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {
        name: after[name] - before.get(name, 0)
        for name in after
        if after[name] > before.get(name, 0)
    }


@pytest.mark.parametrize("look", [cyclescope.heap, lambda: cyclescope.why_alive(count), sample])
def test_a_look_leaves_storages_and_saved_tensors_once(look: Callable[[], object]) -> None:
    layers = [torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(LAYERS)]
    loss = torch.nn.Sequential(*layers)(torch.ones(2, 8)).square().mean()
    kept = [loss]
    look()  # What else is alive in this process has been looked at.
    fresh = torch.nn.Sequential(*layers)(torch.ones(2, 8)).square().mean()
    before = count()
    look()
    left = more(before, count())
    assert set(left) <= {"Tensor", "UntypedStorage"}
    assert left.get("Tensor", 0) <= 5 * LAYERS
    if look is sample:
        assert left.get("Tensor", 0) == 0
    now = count()
    look()
    assert more(now, count()) == {}
    del fresh, loss
    kept.clear()
    # With the graph its tensors and their storages go.
    assert count().get("Tensor", 0) <= before["Tensor"]
