"""The live heap with real device memory: whose it is, and does the sum agree with the allocator?"""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest
import torch

import cyclescope

pytestmark = pytest.mark.gpu

MIB = 2**20
history: list[torch.Tensor] = []


def on_device() -> int:
    """What the heap accounts for, in the blocks of 512 bytes that PyTorch's allocator deals in."""
    buffers = cyclescope.heap().buffers
    return sum(-(-each.bytes // 512) * 512 for each in buffers if each.device == "cuda:0")


def test_the_sum_agrees_with_the_allocator() -> None:
    gc.collect()
    before = torch.cuda.memory_allocated(), on_device()
    kept = [torch.zeros(count * MIB // 4, device="cuda") for count in (1, 3, 32)]
    views = [each[10:] for each in kept]
    after = torch.cuda.memory_allocated(), on_device()
    assert after[0] - before[0] == after[1] - before[1] == 36 * MIB
    assert after[1] <= after[0]
    found = {each.pointer: each for each in cyclescope.heap().buffers}
    for tensor in kept:
        assert found[tensor.data_ptr()].bytes == tensor.nbytes
        assert found[tensor.data_ptr()].holders >= 2
    del views


def test_what_it_is_for_and_who_owns_it() -> None:
    model = torch.nn.Linear(512, 512, device="cuda")
    optimizer = torch.optim.Adam(model.parameters())
    batch = torch.ones(2048, 512, device="cuda")
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    history.append(model(batch).tanh().sum())
    try:
        heap = cyclescope.heap()
        found = {each.pointer: each for each in heap.buffers}
        assert found[model.weight.data_ptr()].category == "parameter"
        assert model.weight.grad is not None
        assert found[model.weight.grad.data_ptr()].category == "gradient"
        moments = optimizer.state[model.weight]["exp_avg"]
        assert found[moments.data_ptr()].category == "optimizer state"
        owners = {row.name: row for row in heap.top("owner").rows}
        (kept,) = [row for name, row in owners.items() if "history" in name]
        assert kept.device_bytes >= 2048 * 512 * 4
        text = str(heap)
        assert "allocat" in text
    finally:
        history.clear()


def test_why_a_tensor_on_the_gpu_is_alive() -> None:
    tensor = torch.zeros(MIB, device="cuda")
    history.append(tensor)
    pointer = tensor.data_ptr()
    try:
        answer = cyclescope.why_alive(tensor)
        assert any(
            "history" in path.root_words or "history" in str(answer) for path in answer.paths
        )
        assert answer.loops == []
        assert tensor.data_ptr() == pointer
    finally:
        history.clear()


def test_a_loop_through_the_gpus_autograd_graph() -> None:
    weight = torch.ones(1024, device="cuda", requires_grad=True)
    output = weight * 2
    output.register_hook(lambda grad: grad + output.numel())  # type: ignore[no-untyped-call]
    answer = cyclescope.why_alive(output)
    assert answer.loops
    assert "no collection can free" in str(answer)


def test_a_look_from_the_thread_of_a_backward_pass() -> None:
    """Hooks of tensors on the GPU run on a thread that PyTorch made, for its device."""
    weight = torch.ones(1024, 1024, device="cuda", requires_grad=True)
    looks: list[tuple[int, cyclescope.Heap, cyclescope.Retention]] = []

    def look(gradient: torch.Tensor) -> None:
        looks.append(
            (threading.get_ident(), cyclescope.heap(), cyclescope.why_alive(weight, gradient))
        )
        gc.collect()

    result: Any = (weight * 2).exp()
    result.register_hook(look)
    for _ in range(3):
        result.sum().backward(retain_graph=True)
    assert len(looks) == 3
    for thread, heap, why in looks:
        assert thread != threading.get_ident()
        assert weight.data_ptr() in {each.pointer for each in heap.buffers}
        assert heap.device_bytes >= weight.nbytes
        assert not any(note.startswith("Another thread") for note in heap.notes)
        assert any("weight" in str(path) for path in why.paths), str(why)
    categories = {each.pointer: each.category for each in looks[-1][1].buffers}
    assert weight.grad is not None
    assert categories[weight.grad.data_ptr()] == "gradient"


def test_a_look_from_one_of_the_threads_of_a_backward_pass() -> None:
    """Another may free a gradient on its device at any time: none is read."""
    near = torch.ones(256, 256, requires_grad=True)
    far = torch.ones(256, 256, device="cuda", requires_grad=True)
    looks: list[cyclescope.Heap] = []
    for _ in range(10):
        result: Any = (far * 2).exp()
        result.register_hook(lambda gradient: looks.append(cyclescope.heap()))
        loss: Any = result.sum().cpu() + (near * 2).exp().sum()
        loss.backward()
    assert len(looks) == 10
    for look in looks:
        assert any(note.startswith("Another thread") for note in look.notes)
        assert {near.data_ptr(), far.data_ptr()} <= {each.pointer for each in look.buffers}
    assert not any(note.startswith("Another thread") for note in cyclescope.heap().notes)
