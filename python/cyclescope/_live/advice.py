"""The patterns of growth, and the advice for each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pattern:
    """One way in which a program keeps memory that it no longer needs."""

    name: str
    what: str
    """What happens, as a sentence that begins with the owner's name."""
    advice: str


_ALL = (
    Pattern(
        "kept-with-graph",
        "{owner} accumulates tensors together with their autograd graphs",
        "Store numbers: `.item()` of a loss or metric, or `.detach()` of a tensor that you need. "
        "A tensor that is not detached keeps its graph and all tensors saved for the backward "
        "pass.",
    ),
    Pattern(
        "evaluation-with-graph",
        "{owner} accumulates outputs of a model in evaluation mode together with their graphs",
        "Evaluate under `with torch.no_grad():` or `torch.inference_mode()`; "
        "`model.eval()` alone does not stop autograd from recording.",
    ),
    Pattern(
        "graph-retained",
        "{owner} accumulates tensors whose graphs `retain_graph=True` kept",
        "Remove `retain_graph=True`, or drop the tensors before the next step: each graph keeps "
        "all tensors saved for the backward pass while any of its tensors is alive.",
    ),
    Pattern(
        "state-not-detached",
        "{owner} has an autograd graph that grows with every step",
        "Detach the state that is carried from step to step: `state = state.detach()` (each "
        "tensor of a tuple), or `.item()` for a running total. Otherwise its graph reaches back "
        "to the first step.",
    ),
    Pattern(
        "gradients-never-cleared",
        "the gradients of {owner} accumulate in every step and are never cleared",
        "Call `optimizer.zero_grad()` once per step. Without it, each step trains with the sum of "
        "all earlier gradients, and the gradients stay allocated during the forward pass.",
    ),
    Pattern(
        "activations-kept-by-hook",
        "{owner}, which is filled by a hook of {hook}, accumulates activations",
        "Make the hook keep only the last activation, or `.detach()` what it keeps and clear it "
        "in each step. Call `remove()` on the hook's handle when the hook is no longer needed.",
    ),
    Pattern(
        "activation-on-module",
        "{owner} keeps an activation with its graph from one step to the next",
        "Keep the activation in a local variable, or store `.detach()` of it. On the module it "
        "keeps its graph through the next forward pass, and with checkpointing also the tensors "
        "that checkpointing was meant to free.",
    ),
    Pattern(
        "grad-fn-kept",
        "{owner} accumulates autograd nodes (`grad_fn`)",
        "Store the facts that you need, such as `grad_fn.name()`: a node keeps its whole graph "
        "alive.",
    ),
    Pattern(
        "model-copies",
        "{owner} accumulates copies of a model's parameters",
        "Keep one copy and overwrite it with `copy_`, or write checkpoints to disk. Move a copy "
        "that must stay to the CPU.",
    ),
    Pattern(
        "container-grows",
        "{owner} accumulates tensors and releases none",
        "Limit its size (`collections.deque(maxlen=...)`), clear it, or move the tensors to the "
        "host with `.cpu()`.",
    ),
)

PATTERNS = {pattern.name: pattern for pattern in _ALL}
"""By name."""
