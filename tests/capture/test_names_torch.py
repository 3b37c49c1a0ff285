"""How what modules and tensors of PyTorch hold is named."""

from __future__ import annotations

from typing import Any

from support.names import Cases, array, torch

CASES = Cases(__name__, __file__)
case, step = CASES.case, CASES.step
test_names, test_every_mark_is_used = CASES.tests()


@case(
    step("~.Net", ".parent", at="Net"),
    step("~.Net", ".child", at="Net"),
    path=(".weight",),
    needs_torch=True,
)
def module_parameter() -> None:
    net, child = Net(), Net()
    net.child = child
    object.__setattr__(child, "parent", net)
    net.weight = torch.nn.Parameter(array())


@case(step("~.Net", ".me", at="Net"), path=(".weight",), needs_torch=True)
def module_buffer() -> None:
    net = Net()
    net.register_buffer("weight", array())
    object.__setattr__(net, "me", net)


@case(
    step("~.Net", "._forward_hooks", at="Net"),
    step("collections.OrderedDict", "[1000]"),
    step(
        "function",
        "closure variable 'net'",
        label="function module_hook.<locals>.<lambda>",
        at="module_hook",
    ),
    path=(".weight",),
    needs_torch=True,
)
def module_hook() -> None:
    net = Net()
    net.register_buffer("weight", array())
    number_next_hook(1000)
    net.register_forward_hook(lambda *_: net)  # at: module_hook


def number_next_hook(number: int) -> None:
    torch.utils.hooks.RemovableHandle.next_id = number


if torch is not None:

    class Net(torch.nn.Module):  # type: ignore[misc]
        parent: Any
        child: Any
        weight: Any

        def forward(self) -> None: ...  # at: Net


@case(step("torch.Tensor", ".me"), path=(), needs_torch=True)
def tensor_attribute() -> None:
    it = array()
    it.me = it


@case(
    step("torch.Tensor", "._backward_hooks"),
    step("collections.OrderedDict", "[1000]"),
    step(
        "function",
        "closure variable 'it'",
        label="function tensor_hook.<locals>.<lambda>",
        at="tensor_hook",
    ),
    path=(),
    needs_torch=True,
)
def tensor_hook() -> None:
    it = array().requires_grad_()
    number_next_hook(1000)
    it.register_hook(lambda grad: it)  # at: tensor_hook
