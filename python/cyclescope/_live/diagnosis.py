"""From a group that grows to its owner and its pattern."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from types import CellType, CodeType, FrameType, FunctionType, MethodType
from typing import Any

from cyclescope import _native
from cyclescope._live import holders
from cyclescope._live.allocator import line_of_block
from cyclescope._live.cohorts import WINDOW, Group
from cyclescope._live.graphs import LEAF, Graph, parameters_behind, saved_by, walk
from cyclescope._live.objects import module_of
from cyclescope._live.reading import Census, LiveTensor, Torch, attributes_of, values_of
from cyclescope._live.redaction import shown_name, shown_place

MAX_NODES = 20_000
SECONDS = 0.2
"""For the graphs that are walked to tell what a group is."""

MAX_SAVING = 1_000
"""Of so many nodes it is read what they keep for the backward pass."""

FEW = 3
"""Of a group fewer members that Python holds than these are no pattern."""

MIB = 2**20


@dataclass(frozen=True)
class Diagnosis:
    """What a group is, and who keeps it."""

    pattern: str
    owner: str
    tensors: int = 1
    bytes: int = 0
    bytes_per_sample: float = 0.0
    example: str = ""
    evidence: str = ""
    hook: str = ""
    allocated_at: str | None = None
    members: list[tuple[int, int]] = field(default_factory=list)
    """Address and pointer of the tensors that were looked at."""
    history: list[tuple[int, int]] | None = None
    """Number and bytes of the group at each sample, in the group's own list, which goes on."""


def diagnose_group(
    torch: Torch, census: Census, kind: str, members: list[Any], group: Group
) -> Diagnosis | None:
    """What a growing group is; None if only C++ holds it, such as an autograd graph.

    Args:
        torch: The module.
        census: What is alive.
        kind: ``graph``, ``parameter``, ``plain`` or ``node``.
        members: Some of it, the youngest first: :class:`LiveTensor`, or nodes.
        group: Its history.
    """
    objects = members if kind == "node" else [each.tensor for each in members]
    held = holders.what_holds(objects, [members, census.nodes])
    if len(held.members) < FEW:
        return None
    members, objects = ([each[i] for i in held.members] for each in (members, objects))
    holder = held.holder
    owner = holders.name_of(objects[0]) if holder is None else holders.name_of(holder)
    size, count = sum(group.bytes.values()), len(group.born)
    window = group.totals[-WINDOW - 1 :]
    rate = (window[-1][1] - window[0][1]) / max(1, len(window) - 1)
    found = Diagnosis(
        pattern="grad-fn-kept",
        owner=owner,
        tensors=count,
        bytes=size,
        bytes_per_sample=rate,
        example=holders.type_name(members[0]) if kind == "node" else example_of(members[0]),
        allocated_at=_line(torch, members[0]),
        history=group.totals,
    )
    if kind == "node":
        return found
    pattern, evidence, hook = _pattern(torch, census.modules, kind, members, holder)
    names = [(id(each.tensor), each.pointer) for each in members]
    return Diagnosis(
        **{**vars(found), "pattern": pattern, "evidence": evidence, "hook": hook, "members": names}
    )


def _line(torch: Torch, each: Any) -> str | None:
    """``file:line`` that made a tensor, if PyTorch or ``tracemalloc`` records that."""
    if type(each) is not LiveTensor:
        return None
    line = line_of_block(torch, each.device, each.pointer)
    tracing = sys.modules.get("tracemalloc")
    if line is None and tracing is not None and tracing.is_tracing():
        buffers = _native.heap().buffers
        line = next((found.site for found in buffers if found.pointer == each.pointer), None)
    return None if line is None else shown_place(line)


def example_of(each: LiveTensor) -> str:
    """``float32[64, 128] on cuda:0``."""
    return f"{each.dtype}{list(each.shape)} on {each.device}"


def _pattern(
    torch: Torch,
    modules: list[Any],
    kind: str,
    members: list[LiveTensor],
    holder: object | None,
) -> tuple[str, str, str]:
    """The pattern's name, the evidence, and the module whose hook fills the container."""
    hook = None if holder is None else _hook_that_fills(modules, holder)
    if hook is not None:
        return "activations-kept-by-hook", "", hook
    if kind == "graph":
        newest = torch._C.TensorBase.grad_fn.__get__(members[0].tensor)
        graph = walk([newest], limit=MAX_NODES, deadline=time.monotonic() + SECONDS)
        parameters = parameters_behind(graph)
        kept = _saved_since(torch, graph)
        with torch._C.DisableTorchFunction():
            for parameter in parameters:
                storage = parameter.untyped_storage()
                kept.pop((str(storage.device), storage.data_ptr()), None)
        evidence = f"{len(graph.nodes)} autograd nodes each" + (
            f", which keep {sum(kept.values()) / MIB:,.2f} MiB" if kept else ""
        )
        if _are_in_evaluation(modules, parameters):
            return "evaluation-with-graph", evidence, ""
        line = _line_that_retains() if kept else None
        if line is not None:
            return "graph-retained", f"{evidence}; {line}", ""
        return "kept-with-graph", evidence, ""
    if kind == "parameter" or _are_copies(modules, members):
        return "model-copies", "", ""
    return "container-grows", "", ""


def diagnose_state(
    torch: Torch, roots: list[LiveTensor], mark: int, states: set[tuple[int, ...]]
) -> Diagnosis | None:
    """The tensor that carries a graph from step to step.

    Not an output or a loss that was computed from it, behind which there are as many old nodes.

    Args:
        torch: The module.
        roots: Tensors with graphs.
        mark: The sequence number of the first node that is younger than the last sample.
        states: The shapes of those that were there at the last sample, and whose own nodes younger
            nodes lead to directly.
    """
    deadline = time.monotonic() + SECONDS
    carriers: list[tuple[bool, int, int, LiveTensor, Graph]] = []
    for root in roots[-64:]:
        node = torch._C.TensorBase.grad_fn.__get__(root.tensor)
        behind = walk([node], limit=MAX_NODES, deadline=deadline)
        old = behind.older_than(mark)
        if old:
            carriers.append((root.shape in states, old, -len(behind.nodes), root, behind))
    carriers.sort(key=lambda each: each[:3], reverse=True)
    # What only C++ holds is part of the graph.
    held = (each for each in carriers[:8] if holders.what_holds([each[3].tensor]).members)
    found = next(held, None)
    if found is None:
        return None
    _, old, _, carrier, behind = found
    kept = sum(_saved_since(torch, behind, mark).values())
    return Diagnosis(
        pattern="state-not-detached",
        owner=holders.name_of(carrier.tensor),
        bytes=carrier.bytes,
        bytes_per_sample=kept,
        example=example_of(carrier),
        evidence=f"{old} of its {len(behind.nodes)} autograd nodes are from earlier steps",
        allocated_at=_line(torch, carrier),
    )


def _saved_since(torch: Torch, graph: Graph, mark: int = 0) -> dict[tuple[str, int], int]:
    """Bytes of the storages that the nodes with a number from ``mark`` on keep.

    Of the youngest only: each tensor that is looked at gets a Python object, which stays with it.
    """
    new = [node for node in graph.nodes.values() if mark <= node._sequence_nr() < LEAF]
    new.sort(key=lambda node: -node._sequence_nr())
    return {each.storage: each.bytes for each in saved_by(torch, new[:MAX_SAVING])}


# Evidence


def _are_in_evaluation(modules: list[Any], parameters: list[Any]) -> bool:
    """True if all modules whose parameters these are were put in evaluation mode."""
    wanted = {id(each) for each in parameters}
    owners = [
        attributes
        for attributes in map(attributes_of, modules)
        if any(id(each) in wanted for each in values_of(attributes.get("_parameters")))
    ]
    return bool(owners) and all(each.get("training") is False for each in owners)


def _are_copies(modules: list[Any], members: list[LiveTensor]) -> bool:
    """True if all have shapes that some module's parameters have."""
    shapes = {
        tuple(each.shape)
        for attributes in map(attributes_of, modules)
        for each in values_of(attributes.get("_parameters"))
        if each is not None
    }
    # A vector has a shape that much else has too.
    return all(each.shape in shapes for each in members) and any(
        len(each.shape) > 1 for each in members
    )


_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)


def _hook_that_fills(modules: list[Any], holder: object) -> str | None:
    """The module one of whose hooks refers to a container, by closure, owner or global name."""
    wanted = {id(holder)} | {id(each) for each in holders.containers_of(holder)}
    for module in modules:
        attributes = attributes_of(module)
        for name in _HOOKS:
            for hook in values_of(attributes.get(name)):
                if any(id(each) in wanted for each in _reach_of(hook)):
                    return holders.type_name(module)
    return None


def _reach_of(hook: object, depth: int = 2) -> Iterable[object]:
    """What a function has at hand: what it captures, its owner's attributes, its globals."""
    kind = type(hook)
    if kind is MethodType:
        owner = hook.__self__  # type: ignore[attr-defined]
        yield owner
        yield from attributes_of(owner).values()
    elif kind is partial:
        yield from (*hook.args, *hook.keywords.values())  # type: ignore[attr-defined]
        if depth:
            yield from _reach_of(hook.func, depth - 1)  # type: ignore[attr-defined]
    elif kind is FunctionType:
        for cell in hook.__closure__ or ():  # type: ignore[attr-defined]
            content = _content(cell)
            yield content
            yield from attributes_of(content).values()
            if depth:
                yield from _reach_of(content, depth - 1)
        yield from hook.__defaults__ or ()  # type: ignore[attr-defined]
        names = hook.__globals__  # type: ignore[attr-defined]
        yield from (names[each] for each in hook.__code__.co_names if each in names)  # type: ignore[attr-defined]


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _line_that_retains() -> str | None:
    """The running code, or a function that it calls by name, that says ``retain_graph``."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not module_of(frame).startswith(("cyclescope", "torch")):
            called = [
                each.__code__
                for name in frame.f_code.co_names
                if type(each := dict.get(frame.f_globals, name)) is FunctionType
            ]
            for code in (frame.f_code, *called):
                if _says(code, "retain_graph"):
                    return f"`retain_graph` in {shown_name(code.co_name)} ({_base(code)})"
        frame = frame.f_back
    return None


def _says(code: CodeType, word: str) -> bool:
    pending = deque([code])
    while pending:
        for constant in pending.popleft().co_consts:
            if type(constant) is tuple and word in constant:
                return True
            if type(constant) is CodeType:
                pending.append(constant)
    return False


def _base(code: CodeType) -> str:
    from os.path import basename

    return f"{basename(code.co_filename)}:{code.co_firstlineno}"
