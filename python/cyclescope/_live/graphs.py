"""Autograd graphs, walked from what Python sees of them.

Only ``next_functions`` and the raw saved tensors are read: to unpack one would run the program's
saved-tensor hooks. The caller makes sure that no backward pass runs (:func:`is_backward_running`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from cyclescope._live.objects import is_one_of
from cyclescope._live.reading import LiveTensor, Torch, read_tensor

LEAF = 2**64 - 1
"""The sequence number of the nodes that accumulate gradients (``AccumulateGrad``)."""


@dataclass
class Graph:
    """The nodes behind some tensors."""

    nodes: dict[int, Any] = field(default_factory=dict)
    """By address; the values keep them from being freed and their addresses from being reused."""
    uses: dict[int, int] = field(default_factory=dict)
    """For each node that accumulates a gradient, how many others lead to it."""
    complete: bool = True
    """False if it is larger than was to be walked."""

    def older_than(self, sequence: int) -> int:
        """How many nodes were made before the one that got this number."""
        return sum(1 for node in self.nodes.values() if node._sequence_nr() < sequence)

    def crossings(self, sequence: int) -> set[int]:
        """The numbers of the older nodes that nodes from this number on lead to directly."""
        return {
            following._sequence_nr()
            for node in self.nodes.values()
            if sequence <= node._sequence_nr() < LEAF
            for following, _ in node.next_functions
            if following is not None and following._sequence_nr() < sequence
        }


def sequence_now(torch: Torch) -> int:
    """The number that the next node made on this thread gets."""
    return int(torch._C._autograd._get_sequence_nr())


def walk(
    roots: Iterable[Any], *, limit: int, deadline: float, known: dict[int, Any] | None = None
) -> Graph:
    """The nodes that ``roots`` lead to, themselves included, but not those ``known``.

    Args:
        roots: Nodes, such as the ``grad_fn`` of tensors.
        limit: How many nodes at most.
        deadline: When to stop, as ``time.monotonic`` has it.
        known: Nodes that are not to be counted, nor walked from.
    """
    graph = Graph()
    known = known or {}
    pending = [node for node in roots if node is not None]
    while pending:
        node = pending.pop()
        if id(node) in graph.nodes or id(node) in known:
            continue
        if len(graph.nodes) >= limit or (
            len(graph.nodes) % 1024 == 1023 and time.monotonic() > deadline
        ):
            graph.complete = False
            break
        graph.nodes[id(node)] = node
        for following, _ in node.next_functions:
            if following is None:
                continue
            if following._sequence_nr() == LEAF:
                graph.uses[id(following)] = graph.uses.get(id(following), 0) + 1
            if id(following) not in graph.nodes:
                pending.append(following)
    return graph


_raw_names: dict[int, tuple[type, list[str]]] = {}


def saved_by(torch: Torch, nodes: Iterable[Any]) -> list[LiveTensor]:
    """The tensors that nodes keep for the backward pass; none once that has released them."""
    found = []
    with torch._C.DisableTorchFunction():
        for node in nodes:
            kind = type(node)
            known = _raw_names.get(id(kind))
            if known is None:
                # The class is kept, so that its address is not another's.
                known = kind, [name for name in dir(kind) if name.startswith("_raw_saved")]
                _raw_names[id(kind)] = known
            for name in known[1]:
                found += _saved(torch, node, name)
    return found


def _saved(torch: Torch, node: Any, name: str) -> list[LiveTensor]:
    try:
        value = getattr(node, name)
    except RuntimeError:
        return []  # released
    found = []
    for saved in value if is_one_of(type(value), (tuple, list)) else (value,):
        # None if released, if nothing was saved, or if this PyTorch does not say.
        tensor = getattr(saved, "data", None)
        if tensor is not None and is_one_of(type(tensor), (torch.Tensor, torch.nn.Parameter)):
            read = read_tensor(torch, tensor)
            if read is not None:
                found.append(read)
    return found


def parameters_behind(graph: Graph) -> list[Any]:
    """The leaves whose gradients the graph would accumulate."""
    return [
        variable
        for node in graph.nodes.values()
        if node._sequence_nr() == LEAF and (variable := getattr(node, "variable", None)) is not None
    ]
