"""Tensors over memory that another object may own: said of these, and of no others."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterator

import numpy
import pytest
import torch

import common
import cyclescope
from support.nodes import Holder

COUNT = 1000
KEPT = numpy.ones(COUNT)


def loaded() -> torch.Tensor:
    file = io.BytesIO()
    torch.save(torch.ones(COUNT), file)
    file.seek(0)
    tensor: torch.Tensor = torch.load(file)
    return tensor


LENT: dict[str, Callable[[], object]] = {
    "an array that is kept": lambda: torch.from_numpy(KEPT),
    "an array": lambda: torch.as_tensor(numpy.ones(COUNT)),
    "a bytearray": lambda: torch.frombuffer(bytearray(4 * COUNT), dtype=torch.float32),
    "DLPack": lambda: torch.from_dlpack(numpy.ones(COUNT)),  # type: ignore[attr-defined]
    "a view": lambda: torch.from_numpy(KEPT)[10:20],
    "a file": loaded,
}
OWN: dict[str, Callable[[], object]] = {
    "a tensor": lambda: torch.ones(COUNT),
    "a view": lambda: torch.ones(COUNT)[10:],
    "a parameter": lambda: torch.nn.Parameter(torch.ones(COUNT)),
    "a storage": lambda: torch.ones(COUNT).untyped_storage(),
    "shared": lambda: torch.ones(COUNT).share_memory_(),  # type: ignore[no-untyped-call]
    "a copy of an array": lambda: torch.from_numpy(KEPT).clone(),
    "a copy": lambda: copy.deepcopy(torch.ones(COUNT)),
    "unpickled": lambda: pickle.loads(pickle.dumps(torch.ones(COUNT))),
    "an array": lambda: numpy.ones(COUNT),
}


@pytest.fixture(autouse=True)
def paused() -> Iterator[None]:
    with common.collector_paused():
        yield


@pytest.mark.parametrize("name", LENT)
def test_what_another_object_may_own_is_said(name: str) -> None:
    Holder(LENT[name]())
    report = cyclescope.find_tensor_cycles(devices="cpu")
    (leak,) = report.leaks
    assert [buffer.lent for buffer in leak.buffers] == [True]
    assert "in memory that another object may still use" in " ".join(report.to_text().split())
    assert "Another object may still use this memory." in report.to_html()


@pytest.mark.parametrize("name", OWN)
def test_of_other_memory_it_is_not_said(name: str) -> None:
    Holder(OWN[name]())
    report = cyclescope.find_tensor_cycles(devices=["cpu", "shared"])
    (leak,) = report.leaks
    assert [buffer.lent for buffer in leak.buffers] == [False]
    assert "another object may" not in report.to_text() + report.to_html()
