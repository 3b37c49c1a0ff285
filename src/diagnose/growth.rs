//! The patterns of growth, and the advice for each.

/// One way in which a program keeps memory that it no longer needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct GrowthPattern {
    pub name: &'static str,
    /// What happens, as a sentence that begins with the owner's name.
    what: &'static str,
    pub advice: &'static str,
    /// True if it explains that graphs grow.
    pub keeps_graphs: bool,
}

impl GrowthPattern {
    /// What happens, in one line.
    pub fn summary(&self, owner: &str, hook: &str, evidence: &str) -> String {
        // The names of variables are marked as such already, those of classes are not.
        let owner = match owner.contains('`') {
            true => owner.to_owned(),
            false => format!("`{owner}`"),
        };
        let what = self.what.replace("{hook}", &format!("`{hook}`"));
        let what = what.replacen("{owner}", &owner, 1);
        match evidence.is_empty() {
            true => what,
            false => format!("{what} ({evidence})"),
        }
    }
}

pub const KEPT_WITH_GRAPH: GrowthPattern = GrowthPattern {
    name: "kept-with-graph",
    what: "{owner} accumulates tensors together with their autograd graphs",
    advice: "Store numbers: `.item()` of a loss or metric, or `.detach()` of a tensor that you \
             need. A tensor that is not detached keeps its graph and all tensors saved for the \
             backward pass.",
    keeps_graphs: true,
};

pub const EVALUATION_WITH_GRAPH: GrowthPattern = GrowthPattern {
    name: "evaluation-with-graph",
    what: "{owner} accumulates outputs of a model in evaluation mode together with their graphs",
    advice: "Evaluate under `with torch.no_grad():` or `torch.inference_mode()`; `model.eval()` \
             alone does not stop autograd from recording.",
    keeps_graphs: true,
};

pub const GRAPH_RETAINED: GrowthPattern = GrowthPattern {
    name: "graph-retained",
    what: "{owner} accumulates tensors whose graphs `retain_graph=True` kept",
    advice: "Remove `retain_graph=True`, or drop the tensors before the next step: each graph \
             keeps all tensors saved for the backward pass while any of its tensors is alive.",
    keeps_graphs: true,
};

pub const STATE_NOT_DETACHED: GrowthPattern = GrowthPattern {
    name: "state-not-detached",
    what: "{owner} has an autograd graph that grows with every step",
    advice: "Detach the state that is carried from step to step: `state = state.detach()` (each \
             tensor of a tuple), or `.item()` for a running total. Otherwise its graph reaches \
             back to the first step.",
    keeps_graphs: false,
};

pub const GRADIENTS_NEVER_CLEARED: GrowthPattern = GrowthPattern {
    name: "gradients-never-cleared",
    what: "the gradients of {owner} accumulate in every step and are never cleared",
    advice: "Call `optimizer.zero_grad()` once per step. Without it, each step trains with the \
             sum of all earlier gradients, and the gradients stay allocated during the forward \
             pass.",
    keeps_graphs: false,
};

pub const ACTIVATIONS_KEPT_BY_HOOK: GrowthPattern = GrowthPattern {
    name: "activations-kept-by-hook",
    what: "{owner}, which is filled by a hook of {hook}, accumulates activations",
    advice: "Make the hook keep only the last activation, or `.detach()` what it keeps and clear \
             it in each step. Call `remove()` on the hook's handle when the hook is no longer \
             needed.",
    keeps_graphs: true,
};

pub const ACTIVATION_ON_MODULE: GrowthPattern = GrowthPattern {
    name: "activation-on-module",
    what: "{owner} keeps an activation with its graph from one step to the next",
    advice: "Keep the activation in a local variable, or store `.detach()` of it. On the module \
             it keeps its graph through the next forward pass, and with checkpointing also the \
             tensors that checkpointing was meant to free.",
    keeps_graphs: false,
};

pub const GRAD_FN_KEPT: GrowthPattern = GrowthPattern {
    name: "grad-fn-kept",
    what: "{owner} accumulates autograd nodes (`grad_fn`)",
    advice: "Store the facts that you need, such as `grad_fn.name()`: a node keeps its whole \
             graph alive.",
    keeps_graphs: true,
};

pub const MODEL_COPIES: GrowthPattern = GrowthPattern {
    name: "model-copies",
    what: "{owner} accumulates copies of a model's parameters",
    advice: "Keep one copy and overwrite it with `copy_`, or write checkpoints to disk. Move a \
             copy that must stay to the CPU.",
    keeps_graphs: false,
};

pub const CONTAINER_GROWS: GrowthPattern = GrowthPattern {
    name: "container-grows",
    what: "{owner} accumulates tensors and releases none",
    advice: "Limit its size (`collections.deque(maxlen=...)`), clear it, or move the tensors to \
             the host with `.cpu()`.",
    keeps_graphs: false,
};

pub const EXCEPTIONS_KEPT: GrowthPattern = GrowthPattern {
    name: "exceptions-kept",
    what: "{owner} accumulates exceptions whose tracebacks keep tensors",
    advice: "Store what you need of an exception, such as `str(error)`, or \
             `error.with_traceback(None)`: its traceback keeps the frames of all calls that it \
             passed, with their local variables.",
    keeps_graphs: false,
};

pub const ARRAYS_ACCUMULATE: GrowthPattern = GrowthPattern {
    name: "container-grows",
    what: "{owner} accumulates arrays and releases none",
    advice: "Limit its size (`collections.deque(maxlen=...)`), clear it, or write the arrays to disk.",
    keeps_graphs: false,
};

pub const TENSOR_GROWS: GrowthPattern = GrowthPattern {
    name: "tensor-grows",
    what: "{owner} is replaced by a longer tensor again and again",
    advice: "Keep the part that you need (`past = past[-n:]`), begin anew with each sequence, or \
             write into a tensor of fixed length. Each `torch.cat` copies all of it, too.",
    keeps_graphs: false,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_classes_are_marked_and_the_evidence_follows() {
        assert_eq!(
            GRADIENTS_NEVER_CLEARED.summary("Linear", "", "in 100 steps"),
            "the gradients of `Linear` accumulate in every step and are never cleared (in 100 steps)"
        );
        let told = ACTIVATIONS_KEPT_BY_HOOK.summary("local `kept` in `fit`", "Net", "");
        assert!(told.starts_with("local `kept` in `fit`, which is filled by a hook of `Net`,"));
    }
}
