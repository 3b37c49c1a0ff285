"""As ``followed``: the patterns of PyTorch."""

from __future__ import annotations

import gc
from typing import Any

import torch
import torch.fx
import torch.utils.data
from torch.nn.utils import parametrize

from support.followed import Make, Thing, of


class Scale(torch.nn.Module):
    def __init__(self, weight: Any) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(weight)
        self.size = 1

    def forward(self, x: Any) -> Any:
        return self.weight * x


@of("module-hook-captures-module")
def module_hook(make: Make, followed: bool) -> None:
    """Use the module that the hook is called with, in a function that captures nothing."""
    module = Scale(make())
    captures = lambda *_: module.size  # noqa: E731
    module.register_forward_hook((lambda it, *_: None) if followed else captures)
    if followed:
        del captures


@of("module-hook-captures-module")
def module_hook_removed(make: Make, followed: bool) -> None:
    """Or call ``.remove()`` on the handle."""
    module = Scale(make())
    handle = module.register_forward_hook(lambda *_: module)
    if followed:
        handle.remove()


@of("tensor-hook-captures-tensor")
def tensor_hook(make: Make, followed: bool) -> None:
    """Capture the values that it needs."""
    weight = make().requires_grad_()
    count = weight.numel()
    weight.register_hook((lambda grad: grad / count) if followed else (lambda grad: weight))


@of("optimizer-hook-captures-owner")
def optimizer_hook(make: Make, followed: bool) -> None:
    """Call ``.remove()`` on the handle when training ends."""
    thing = Thing(tensor=make())
    thing.optimizer = torch.optim.SGD([thing.tensor.requires_grad_()], lr=0.1)
    handle = thing.optimizer.register_step_post_hook(thing.work)
    if followed:
        handle.remove()


@of("scheduler-lambda-captures-owner")
def scheduler(make: Make, followed: bool) -> None:
    """Capture the values that it needs."""
    thing = Thing(tensor=make(), warmup=3)
    warmup = thing.warmup
    optimizer = torch.optim.SGD([thing.tensor.requires_grad_()], lr=0.1)
    function = (lambda _: warmup) if followed else (lambda _: thing.warmup)
    thing.scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, function)


@of("loader-callback-captures-owner")
def loader(make: Make, followed: bool) -> None:
    """Capture the values that it needs."""
    thing = Thing(tensor=make(), size=1)
    size = thing.size
    function = (lambda batch: size) if followed else (lambda batch: thing.size)
    thing.loader = torch.utils.data.DataLoader([1, 2], collate_fn=function)  # type: ignore[arg-type]


@of("forward-replaced")
def forward(make: Make, followed: bool) -> None:
    """Define ``forward`` in a subclass instead."""
    module = (Doubled if followed else Scale)(make())
    if not followed:
        original = module.forward
        module.forward = lambda x: original(x)  # type: ignore[method-assign]


class Doubled(Scale):
    def forward(self, x: Any) -> Any:
        return super().forward(x)


@of("autograd-context-kept-both-ways")
def context(make: Make, followed: bool) -> None:
    """Save it with ``ctx.save_for_backward``."""
    (Saved if followed else Kept).apply(make().requires_grad_())  # type: ignore[no-untyped-call]


class Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.output = x.exp()
        return ctx.output

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * ctx.output


class Saved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        output = x.exp()
        ctx.save_for_backward(output)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * ctx.saved_tensors[0]


@of("tensor-attribute-leads-back")
def tensor_attribute(make: Make, followed: bool) -> None:
    """Store there only the values that are needed."""
    tensor = make()
    tensor.owner = "the owner's name" if followed else Thing(tensor=tensor)


@of("parametrized-module")
def parametrized(make: Make, followed: bool) -> None:
    """Call ``remove_parametrizations`` before the module is dropped."""
    module = parametrize.register_parametrization(Scale(make()), "weight", torch.nn.ReLU())
    if followed:
        parametrize.remove_parametrizations(module, "weight")


@of("traced-graph-module")
def traced(make: Make, followed: bool) -> None:
    """Run ``gc.collect()`` where traced modules are dropped."""
    torch.fx.symbolic_trace(Scale(make()))
    if followed:
        gc.collect()
