"""What is kept from one step to the next without growing: gradients and activations on modules."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from cyclescope._live.diagnosis import Diagnosis, example_of
from cyclescope._live.holders import type_name
from cyclescope._live.reading import (
    Torch,
    attributes_of,
    objects_of_types,
    read_tensor,
)
from cyclescope._live.redaction import shown_name

STEPS = 100
"""In so many steps in a row a gradient must have been added to once, and nothing else done to it:
more than are made where gradients are accumulated on purpose."""

WATCHED = 4


class Gradients:
    """Watches some parameters for gradients that are added to and never cleared.

    To add to a gradient, or to fill it with zeros, raises the version of its tensor by one, and a
    new gradient begins at zero. So a version that is one more after each step than after the one
    before says that the gradient was added to once and not cleared. (With ``clip_grad_norm_``,
    which multiplies it, the version cannot tell, and nothing is said.)
    """

    def __init__(self) -> None:
        self._watched: list[weakref.ref[Any]] = []
        self._last: dict[int, tuple[int, int]] = {}
        """For each position of `_watched`, the gradient's address and version."""
        self._in_row: dict[int, int] = {}
        self._said = False

    def watch(self, torch: Torch, modules: list[Any]) -> None:
        """Choose the parameters to watch, unless those that were are alive."""
        if self._said or any(ref() is not None for ref in self._watched):
            return
        self._last.clear()
        self._in_row.clear()
        self._watched = [
            weakref.ref(parameter)
            for parameter, _ in _with_gradients(torch, modules, limit=WATCHED)
        ]

    def step(self, torch: Torch, number: int) -> Iterable[Diagnosis]:
        """Look at the versions, at the end of a step."""
        if self._said or not self._watched:
            return []
        base = torch._C.TensorBase
        for index, ref in enumerate(self._watched):
            parameter = ref()
            gradient = None if parameter is None else base.grad.__get__(parameter)
            if gradient is None:
                self._in_row[index] = 0
                self._last.pop(index, None)
                continue
            now = id(gradient), int(base._version.__get__(gradient))
            before = self._last.get(index)
            added = before is not None and now == (before[0], before[1] + 1)
            self._in_row[index] = self._in_row.get(index, 0) + 1 if added else 0
            self._last[index] = now
        if all(self._in_row.get(i, 0) >= STEPS for i in range(len(self._watched))):
            self._said = True
            return [_uncleared(torch)]
        return []


def _uncleared(torch: Torch) -> Diagnosis:
    (modules,) = objects_of_types([torch.nn.Module])
    found = list(_with_gradients(torch, modules))
    largest = max((gradient for _, gradient in found), key=lambda each: each.bytes)
    owners = {
        type_name(module)
        for module in modules
        for parameter in _parameters(module)
        if any(parameter is each for each, _ in found)
    }
    return Diagnosis(
        pattern="gradients-never-cleared",
        owner=" and ".join(sorted(owners)[:3]) or "parameters",
        tensors=len(found),
        bytes=sum(gradient.bytes for _, gradient in found),
        example=example_of(largest),
        evidence=f"in {STEPS} steps in a row each was added to once, and nothing else done to it",
    )


def _with_gradients(
    torch: Torch, modules: list[Any], limit: int | None = None
) -> Iterable[tuple[Any, Any]]:
    """Parameters that have a gradient, and the gradients."""
    base = torch._C.TensorBase
    seen: set[int] = set()
    with torch._C.DisableTorchFunction():
        for module in modules:
            for parameter in _parameters(module):
                if id(parameter) in seen:
                    continue
                seen.add(id(parameter))
                gradient = base.grad.__get__(parameter)
                read = None if gradient is None else read_tensor(torch, gradient)
                if read is not None:
                    yield parameter, read
                    if limit is not None:
                        limit -= 1
                        if limit <= 0:
                            return


def _parameters(module: Any) -> list[Any]:
    found = attributes_of(module).get("_parameters")
    return [each for each in found.values() if each is not None] if type(found) is dict else []


def activations_on_modules(torch: Torch, modules: list[Any]) -> Iterable[Diagnosis]:
    """Attributes of modules that hold a tensor with a graph.

    Not those that a re-parametrization computes, such as ``weight`` of ``weight_norm``, which has
    ``weight_g`` among the parameters.
    """
    with torch._C.DisableTorchFunction():
        for module in modules:
            attributes = attributes_of(module)
            parameters = attributes.get("_parameters")
            derived = tuple(parameters) if type(parameters) is dict else ()
            for name, value in list(attributes.items()):
                if not issubclass(type(value), torch.Tensor):
                    continue
                if any(each.startswith(f"{name}_") for each in derived):
                    continue
                read = read_tensor(torch, value)
                if read is not None and read.has_graph:
                    yield Diagnosis(
                        pattern="activation-on-module",
                        owner=f"{type_name(module)}.{shown_name(name)}",
                        bytes=read.bytes,
                        example=example_of(read),
                    )
