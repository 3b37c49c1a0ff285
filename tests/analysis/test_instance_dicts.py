"""Instance dictionaries: no look makes one, and one that is there changes no name."""

from __future__ import annotations

import gc
from typing import Any

import numpy
import pytest

import cyclescope


class Net:
    def __init__(self) -> None:
        super().__setattr__("_parameters", {})
        self._parameters: dict[str, Any]
        self._parameters["weight"] = numpy.ones(5000)
        self.me = [self]


@pytest.mark.parametrize("is_made", [False, True])
def test_a_parameter_is_an_attribute_whatever_was_made_first(is_made: bool) -> None:
    net = Net()
    if is_made:
        assert net.__dict__
    del net
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert leak.buffers[0].path == [".weight"]


def test_explicit_checks_make_none() -> None:
    torch = pytest.importorskip("torch", reason="is about modules and optimizers")
    layer = torch.nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    before = [len(gc.get_referents(thing)) for thing in (layer, optimizer)]
    cyclescope.heap()
    cyclescope.why_alive(optimizer.state)
    with cyclescope.LeakMonitor(every=1, devices="any") as monitor:
        for _ in range(3):
            monitor.step()
    assert [len(gc.get_referents(thing)) for thing in (layer, optimizer)] == before
