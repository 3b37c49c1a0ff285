"""Is each shape of PyTorch's leaks recognised as what it is, and is the advice about it?"""

from __future__ import annotations

from unittest import SkipTest

import pytest

import common
import cyclescope

HOOK = "module-hook-captures-module"
CONTEXT = "autograd-context-kept-both-ways"

SHAPES = {
    "autograd_context": (CONTEXT, "`ctx.owner` of `Round` is a Quantizer"),
    "autograd_context_output": (CONTEXT, "ctx.save_for_backward"),
    "loader_collate_captures_owner": ("loader-callback-captures-owner", "`collate_fn`"),
    "loader_worker_init_bound_method": ("loader-callback-captures-owner", "`worker_init_fn`"),
    "metrics_know_module": ("linked-both-ways", "`Metrics.module`"),
    "module_backward_hook_captures_module": (HOOK, "A backward hook of `Scale`"),
    "module_forward_method_type": ("forward-replaced", "`squared`"),
    "module_forward_partial": ("forward-replaced", "a `functools.partial` of `forward`"),
    "module_forward_wrapped": ("forward-replaced", "captures `original`"),
    "module_hook_captures_module": (HOOK, "the module that the hook is called with"),
    "module_keeps_parent_in_list": ("linked-both-ways", "`Head._parent`"),
    "module_keeps_parent_unregistered": ("linked-both-ways", "`Head.parent`"),
    "module_load_state_dict_hook": (HOOK, "A load-state-dict pre-hook of `Renamed`"),
    "module_pre_hook_bound_method": (HOOK, "A forward pre-hook of `Checked`"),
    "module_state_dict_hook_captures_owner": (HOOK, "A state-dict hook of `Scale`"),
    "optimizer_hook_bound_method": ("optimizer-hook-captures-owner", "A step post-hook of `SGD`"),
    "parametrized_module": ("parametrized-module", "remove_parametrizations"),
    "scheduler_lambda_captures_owner": ("scheduler-lambda-captures-owner", "a lambda"),
    "submodule_lambda_captures_module": ("closure-captures-owner", "`Lambda.function`"),
    "tensor_attribute": ("tensor-attribute-leads-back", "`owner` of a Tensor is a Shard"),
    "tensor_attribute_on_itself": ("tensor-attribute-leads-back", "`record` of a Tensor"),
    "tensor_hook_bound_method": ("tensor-hook-captures-tensor", "a method bound to the Clipped"),
    "tensor_hook_captures_tensor": ("tensor-hook-captures-tensor", "the tensor itself"),
    "traced_graph_module": ("traced-graph-module", "Trace once"),
}


pytestmark = pytest.mark.usefixtures("collector_paused")


@pytest.mark.parametrize("name", SHAPES)
def test_shape_is_recognised(name: str) -> None:
    pattern, advice = SHAPES[name]
    try:
        fixture = common.load(name)
    except SkipTest as reason:
        pytest.skip(str(reason))
    fixture.leak("cpu")
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert leak.pattern == pattern
    assert advice in leak.advice


@pytest.mark.parametrize("has_forward", [True, False])
def test_forward_of_a_module_without_one_is_not_replaced(*, has_forward: bool) -> None:
    torch = pytest.importorskip("torch")

    class Chosen(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(50, 50)
            self.forward = self.fast

        def fast(self, batch: object) -> object:
            return self.layer(batch)

    if has_forward:
        setattr(Chosen, "forward", Chosen.fast)  # noqa: B010
    Chosen()
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert (leak.pattern == "forward-replaced") == has_forward
