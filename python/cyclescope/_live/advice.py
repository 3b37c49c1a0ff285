"""The patterns in which tensors pile up, and what to do about each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pattern:
    """One way to keep memory that nobody wants."""

    name: str
    what: str
    """What happens, in a sentence that begins with the owner's name."""
    advice: str


_ALL = (
    Pattern(
        "kept-with-graph",
        "{owner} collects tensors with the autograd graph behind each",
        "Store numbers: `.item()` of a loss or metric, or `.detach()` of a tensor that you need; "
        "each tensor kept as it is keeps its graph, and what that saved for the backward pass.",
    ),
    Pattern(
        "evaluation-with-graph",
        "{owner} collects results of a model in evaluation mode with the graph behind each",
        "Evaluate under `with torch.no_grad():` or `torch.inference_mode()`; "
        "`model.eval()` alone does not stop autograd from recording.",
    ),
    Pattern(
        "graph-retained",
        "{owner} collects tensors whose graphs `retain_graph=True` kept whole",
        "Leave out `retain_graph=True`, or drop the tensors before the next step: each graph keeps "
        "all it saved for the backward pass for as long as any of its tensors lives.",
    ),
    Pattern(
        "state-not-detached",
        "{owner} has a graph behind it that grows from step to step",
        "Detach what is carried from step to step: `state = state.detach()` (each tensor of "
        "a tuple), or of a running total take `.item()`; otherwise its graph reaches back to the "
        "first step.",
    ),
    Pattern(
        "gradients-never-cleared",
        "the gradients of {owner} are added to in every step and never cleared",
        "Call `optimizer.zero_grad()` once in each step. As it is, each step trains with the sum "
        "of all before it, and the gradients stay allocated during the forward pass.",
    ),
    Pattern(
        "activations-kept-by-hook",
        "{owner}, which a hook of {hook} fills, collects activations",
        "Let the hook keep the last activation only, or `.detach()` what it keeps and clear it in "
        "each step; `remove()` the hook's handle when it is no longer needed.",
    ),
    Pattern(
        "activation-on-module",
        "{owner} keeps an activation with its graph from one step to the next",
        "Keep it in a local variable, or store `.detach()` of it: on the module it keeps its graph "
        "through the next forward pass, with checkpointing also what that was to save.",
    ),
    Pattern(
        "grad-fn-kept",
        "{owner} collects autograd nodes (`grad_fn`)",
        "Store what you want to know of a node, such as `grad_fn.name()`: the node itself keeps "
        "the whole graph behind it.",
    ),
    Pattern(
        "model-copies",
        "{owner} collects copies of a model's parameters",
        "Keep one copy and overwrite it (`copy_`), or write checkpoints to disk; a copy that must "
        "stay can be on the CPU.",
    ),
    Pattern(
        "container-grows",
        "{owner} collects tensors and gives none back",
        "Bound it (`collections.deque(maxlen=...)`), clear it, or move what is kept to the host "
        "with `.cpu()`.",
    ),
)

PATTERNS = {pattern.name: pattern for pattern in _ALL}
"""By name."""
