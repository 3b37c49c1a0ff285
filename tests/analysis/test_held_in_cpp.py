"""What C++ has of a tensor beside what Python sees of it."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

import cyclescope
from support.marks import HAS_TORCH, needs_torch
from support.processes import python

if HAS_TORCH:
    import torch

pytestmark = needs_torch

counts_are_told = pytest.mark.skipif(
    HAS_TORCH and tuple(map(int, torch.__version__.split(".")[:2])) < (2, 11),
    reason="PyTorch before 2.11 does not tell how often C++ refers to a tensor",
)


class Holder:
    def __init__(self) -> None:
        self.kept: Any = None


@pytest.mark.parametrize("views", [1, 2, 5])
@pytest.mark.parametrize("is_exported", [False, True])
@counts_are_told
def test_a_capsule_beside_views(views: int, is_exported: bool) -> None:
    tensor = torch.zeros(1000)
    holder = Holder()
    capsule = tensor.__dlpack__() if is_exported else None
    holder.kept = [tensor[:10] for _ in range(views)]
    weak = weakref.ref(tensor)
    del tensor
    retention = cyclescope.why_alive(weak())
    assert retention.is_enough != is_exported
    assert any("C or C++" in note for note in retention.notes) == is_exported
    assert any("DLPack capsule" in note for note in retention.notes) == is_exported
    (row,) = [row for row in cyclescope.heap().top("owner").rows if "`holder`" in row.name]
    assert row.host_bytes == 4000
    assert row.retained_bytes == (0 if is_exported else 4000)
    holder.kept.clear()
    assert (weak() is None) != is_exported
    del capsule
    assert weak() is None


def test_what_the_context_of_a_function_has_goes_with_the_graph() -> None:
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, mask: Any) -> Any:
            ctx.mask = mask
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * 2, None

    mask = torch.zeros(1000)
    result = Scaled.apply(torch.rand(1000, requires_grad=True), mask)  # type: ignore[no-untyped-call]
    first, second = result.sum(), result.mean()
    weak = weakref.ref(mask)
    del mask, result
    retention = cyclescope.why_alive(weak())
    named = {keeper.words.split("`")[1] for keeper in retention.keepers}
    assert (named, retention.is_enough) == ({"first", "second"}, True)
    del first
    assert weak() is not None
    del second
    assert weak() is None


def test_a_function_of_the_program_is_the_grad_fn_of_its_result() -> None:
    class Masked(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mask = torch.zeros(1000)
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * ctx.mask

    result = Masked.apply(torch.rand(1000, requires_grad=True))  # type: ignore[no-untyped-call]
    (path,) = cyclescope.why_alive(result.grad_fn.mask).paths
    assert "`result` in" in path.words
    assert " → .grad_fn (MaskedBackward) → .mask" in path.words


def test_no_wrapper_is_said_to_hold_what_is_taken_out_of_it() -> None:
    class Quantized(torch.Tensor):
        @staticmethod
        def __new__(cls, data: Any) -> Any:
            kept: Any = torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=torch.float32)
            kept.data_ = data
            return kept

        @classmethod
        def __torch_dispatch__(cls, *_: Any) -> Any:
            return NotImplemented

    data = torch.zeros(1000, dtype=torch.int8)
    first = data[:10]
    wrapper: Any = Quantized(data)
    weak, storage = weakref.ref(data), data.untyped_storage()._weak_ref()
    del data
    retention = cyclescope.why_alive(weak())
    assert (len(retention.keepers), retention.is_enough) == (2, True)
    assert not [note for note in retention.notes if "holds it too" in note]
    del first, wrapper.data_
    assert weak() is None
    assert torch.UntypedStorage._expired(storage)
    other = torch.nn.Parameter(torch.zeros(1000))
    inner = other.detach()
    wrapper = Quantized(inner)
    weak = weakref.ref(inner)
    del inner
    (note,) = [note for note in cyclescope.why_alive(weak()).notes if "holds it too" in note]
    assert "`other`" in note


def test_a_loop_that_no_collection_frees_is_told_how_to_end() -> None:
    def loop() -> weakref.ref[Any]:
        tensor: Any = torch.rand(1000, requires_grad=True) * 2
        tensor.register_hook(lambda _: tensor)
        return weakref.ref(tensor)

    weak = loop()
    retention = cyclescope.why_alive(weak())
    assert len(retention.loops) == 1
    assert [note for note in retention.notes if "Remove one of its references." in note]
    tensor: Any = weak()
    tensor._backward_hooks.clear()


def bytes_of(category: str) -> int:
    gc.collect()
    rows = cyclescope.heap().top("category").rows
    return sum(row.host_bytes for row in rows if row.name == category)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_the_gradient_of_an_embedding(is_sparse: bool) -> None:
    before = bytes_of("parameter"), bytes_of("gradient")
    table = torch.nn.Embedding(1000, 10, sparse=is_sparse)
    table(torch.arange(400)).sum().backward()
    # Of a sparse one: 400 rows and their numbers.
    gradient = 400 * 10 * 4 + 400 * 8 if is_sparse else 40_000
    assert bytes_of("parameter") - before[0] == 40_000
    assert bytes_of("gradient") - before[1] == gradient


def test_a_parameter_is_one_without_its_module() -> None:
    before = bytes_of("parameter")
    alone = torch.nn.Parameter(torch.rand(1000))
    model = torch.nn.Linear(100, 100, bias=False)
    loss = model(torch.rand(2, 100)).sum()
    del model
    assert bytes_of("parameter") - before == alone.nbytes + 100 * 100 * 4
    del loss


def test_only_owners_are_said_to_be_freed_by_a_collection() -> None:
    class Node:
        def __init__(self) -> None:
            self.me, self.tensor = self, torch.zeros(1000)

    node = Node()
    heap = cyclescope.heap()
    words = "freed only by a garbage collection"
    assert words in " ".join(heap.top("owner").to_text().split())
    assert words not in " ".join(heap.top("category").to_text().split())
    del node.me


def test_arguments_that_others_keep_are_not_taken_for_those_of_the_call() -> None:
    script = """
import atexit, torch, weakref, cyclescope
tensor = torch.zeros(1000)
weak = weakref.ref(tensor)
atexit.register(print, tensor)
del tensor
print(*cyclescope.why_alive(weak()).to_text().split())
objects = (weak(),)
print(*cyclescope.why_alive(*objects).to_text().split())
"""
    for text in python("-c", script).stdout.splitlines()[:2]:
        assert "atexit" in text
        assert "from an expression that is being evaluated" not in text


def test_a_loop_through_a_function_of_the_program_is_one_that_collections_free() -> None:
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * 2

    result: Any = Scaled.apply(torch.rand(1000, requires_grad=True))  # type: ignore[no-untyped-call]
    result.grad_fn.result = result
    weak = weakref.ref(result)
    retention = cyclescope.why_alive(weak())
    assert not retention.loops
    assert (retention.is_enough, retention.by_collection) == (True, True)
    del result
    gc.collect()
    assert weak() is None
