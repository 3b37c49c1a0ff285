"""Which memory a program keeps, and in what role; for the post-mortem."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from cyclescope._live import holders, reading
from cyclescope._live.graphs import LEAF, Graph, saved_by, walk
from cyclescope._live.reading import Census, LiveTensor, Torch, attributes_of, read_tensor

MAX_NODES = 200_000
FEW = 3
"""Fewer tensors with graphs than these in a container are not a collection of them."""

Pointers = dict[int, int]
"""Bytes by address."""


@dataclass
class Roles:
    """The storages of a device that Python sees, by what they are for."""

    parameters: Pointers = field(default_factory=dict)
    gradients: Pointers = field(default_factory=dict)
    optimizer: Pointers = field(default_factory=dict)
    buffers: Pointers = field(default_factory=dict)
    """Of modules."""
    other: Pointers = field(default_factory=dict)

    @property
    def persistent(self) -> Pointers:
        """What stays from step to step."""
        return {**self.parameters, **self.gradients, **self.optimizer, **self.buffers}


def roles(torch: Torch, census: Census, device: str) -> Roles:
    """Sort what is on a device.

    As the categories of :func:`cyclescope.heap` do (its parameters include the buffers, and its
    gradients those of leaves that are in no module), but from the census alone: those come with
    a walk of autograd's graphs, which are left alone in a backward pass, and memory often runs out
    in one.
    """
    found = Roles()
    base = torch._C.TensorBase
    taken: set[int] = set()

    def take(into: Pointers, tensor: Any) -> None:
        read = read_tensor(torch, tensor)
        if read is not None and read.device == device and read.pointer not in taken:
            taken.add(read.pointer)
            into[read.pointer] = read.bytes

    with torch._C.DisableTorchFunction():
        for module in census.modules:
            attributes = attributes_of(module)
            for parameter in reading.values_of(attributes.get("_parameters")):
                if parameter is not None:
                    take(found.parameters, parameter)
                    gradient = base.grad.__get__(parameter)
                    if gradient is not None:
                        take(found.gradients, gradient)
            for buffer in reading.values_of(attributes.get("_buffers")):
                if buffer is not None:
                    take(found.buffers, buffer)
        for optimizer in reading.optimizers_of(torch):
            for tensor in reading.tensors_within(torch, attributes_of(optimizer).get("state")):
                take(found.optimizer, tensor)
    for each in census.tensors:
        if each.device == device and each.pointer not in taken:
            found.other[each.pointer] = each.bytes
    return found


@dataclass
class Collection:
    """A container of tensors with graphs."""

    holder: Any
    members: list[LiveTensor]
    freed: Pointers = field(default_factory=dict)
    """What would be free on the device if it kept none but its last member."""


def collections_of_graphs(
    torch: Torch, census: Census, device: str, deadline: float
) -> list[Collection]:
    """The containers that keep several tensors with graphs, and what only they keep."""
    tensors = {id(each.tensor): each for each in census.tensors if each.has_graph}
    found = _containers(tensors, deadline)
    # What no Python object holds is part of a graph, and no reason for one.
    held = {name for _, names in found.values() for name in names} | {
        id(value) for _, value, _ in holders.all_locals()
    }
    collections = []
    taken: set[int] = set()
    for holder, names in sorted(found.values(), key=lambda each: -len(each[1])):
        names = names - taken
        if len(names) < FEW or time.monotonic() > deadline:
            continue
        taken |= names
        members = [tensors[name] for name in names]
        members.sort(key=lambda each: _node(torch, each)._sequence_nr())
        collection = Collection(holder, members)
        others = [tensors[name] for name in held & set(tensors) if name not in names]
        collection.freed = _only_by(torch, census, collection, others, device, deadline)
        collections.append(collection)
    return collections


def _only_by(
    torch: Torch,
    census: Census,
    collection: Collection,
    others: list[LiveTensor],
    device: str,
    deadline: float,
) -> Pointers:
    """What goes with all members but the last: it may be in use."""
    going = collection.members[:-1]
    staying = [*others, collection.members[-1]]
    rest = walk([_node(torch, each) for each in staying], limit=MAX_NODES, deadline=deadline)
    own = walk(
        [_node(torch, each) for each in going],
        limit=MAX_NODES,
        deadline=deadline,
        known=rest.nodes,
    )
    if not rest.complete:
        return {}  # what is shared with it is not known
    gone = {id(each.tensor) for each in going}
    freed = {each.pointer: each.bytes for each in going if each.device == device}
    saved = [each for each in saved_by(torch, own.nodes.values()) if each.device == device]
    freed.update((each.pointer, each.bytes) for each in saved)
    own_objects = {id(each.tensor) for each in saved} | gone
    for each in (*census.tensors, *saved_by(torch, rest.nodes.values())):
        if id(each.tensor) not in own_objects:
            freed.pop(each.pointer, None)
    return freed


def _number(node: Any) -> int:
    """The place of a node in time; before all others for those that accumulate gradients."""
    number = int(node._sequence_nr())
    return -1 if number == LEAF else number


def _node(torch: Torch, each: LiveTensor) -> Any:
    return torch._C.TensorBase.grad_fn.__get__(each.tensor)


def _containers(
    tensors: dict[int, LiveTensor], deadline: float, levels: int = 3
) -> dict[int, tuple[Any, set[int]]]:
    """The objects that hold some of the tensors, directly or by way of small objects."""
    reaching: dict[int, set[int]] = {name: {name} for name in tensors}
    found: dict[int, tuple[Any, set[int]]] = {}
    for _ in range(levels):
        above: dict[int, tuple[Any, set[int]]] = {}
        for each in gc.get_objects():
            if type(each) in holders.NO_HOLDERS or id(each) in reaching or holders.is_ours(each):
                continue
            names: set[int] = set()
            for referent in gc.get_referents(each):
                if id(referent) in reaching:
                    names |= reaching[id(referent)]
            if names and each is not tensors and each is not reaching and each is not above:
                above[id(each)] = each, names
        new = {key: value for key, value in above.items() if key not in found}
        found.update(new)
        # A collection of many is what was looked for; what holds it would count as one as well.
        reaching = {key: names for key, (_, names) in new.items() if len(names) < FEW}
        if not reaching or time.monotonic() > deadline:
            break
    return found


@dataclass(frozen=True)
class Working:
    """What the running functions use."""

    pointers: Pointers
    is_one_pass: bool
    """The graph behind it uses each parameter once or twice, so it is of one pass of a model."""
    nodes: int


def working_set(
    torch: Torch, census: Census, device: str, deadline: float, *, with_graphs: bool
) -> Working:
    """The tensors in local variables of running functions, and what their graphs keep.

    And those that are newer than all of these: they are on their way from one call to the next.

    Args:
        torch: The module.
        census: What is alive.
        device: Which memory.
        deadline: When to stop.
        with_graphs: False while a backward pass runs.
    """
    locals_ = [
        value
        for _, value, frame in holders.all_locals()
        if frame.f_code.co_name != "<module>" and issubclass(type(value), torch.Tensor)
    ]
    pointers: Pointers = {}
    with torch._C.DisableTorchFunction():
        read = [each for value in locals_ if (each := read_tensor(torch, value)) is not None]
    graph = Graph()
    if with_graphs:
        graph = walk(
            [_node(torch, each) for each in read if each.has_graph],
            limit=MAX_NODES,
            deadline=deadline,
        )
        newest = max((_number(node) for node in graph.nodes.values()), default=0)
        under_way = [
            each
            for each in census.tensors
            if each.has_graph and _number(_node(torch, each)) > newest
        ]
        read += under_way
        graph = walk(
            [_node(torch, each) for each in read if each.has_graph],
            limit=MAX_NODES,
            deadline=deadline,
        )
    one_pass = with_graphs and graph.complete and max(graph.uses.values(), default=0) <= 2
    kept: Iterable[LiveTensor] = read
    if one_pass:
        kept = [*read, *saved_by(torch, graph.nodes.values())]
    for each in kept:
        if each.device == device:
            pointers[each.pointer] = each.bytes
    return Working(pointers, one_pass, len(graph.nodes))
