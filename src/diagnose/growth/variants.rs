//! Patterns that have the page of another one and say something more particular.

use super::{CONTAINER_GROWS, GrowthPattern, MODEL_COPIES};

/// As [`MODEL_COPIES`], of tensors on the host.
pub const MODEL_COPIES_ON_HOST: GrowthPattern = GrowthPattern {
    advice: "If they are copies of a model, keep one and overwrite it with `copy_`, or write \
             checkpoints to disk. Remove the rest.",
    ..MODEL_COPIES
};

/// As [`CONTAINER_GROWS`], of tensors on the host.
pub const CONTAINER_GROWS_ON_HOST: GrowthPattern = GrowthPattern {
    advice: "Limit its size (`collections.deque(maxlen=...)`), clear it, or write the tensors to disk.",
    ..CONTAINER_GROWS
};

/// As [`CONTAINER_GROWS`], of views that show a small part of what they keep.
pub const VIEWS_ACCUMULATE: GrowthPattern = GrowthPattern {
    what: "{owner} accumulates tensors that are views of larger storages",
    advice: "Store `.clone()` of each view, which keeps its own part only: a view keeps the whole storage \
             alive. If that is still too much, limit the size of the container \
             (`collections.deque(maxlen=...)`), or clear it.",
    ..CONTAINER_GROWS
};

/// As [`CONTAINER_GROWS`], of the hooks of a module, a tensor or an optimizer.
pub const HOOKS_ACCUMULATE: GrowthPattern = GrowthPattern {
    what: "{owner} accumulates hooks, and what these keep",
    advice: "Register the hook once, or call `remove()` on its handle, which registering it returns, when the \
             hook is no longer needed.",
    ..CONTAINER_GROWS
};

/// As [`CONTAINER_GROWS`], of the parameters of an optimizer.
pub const PARAMETERS_ACCUMULATE: GrowthPattern = GrowthPattern {
    what: "{owner} accumulates parameters",
    advice: "An optimizer keeps the parameters that `add_param_group` has added, also those that the model no \
             longer has. Make a new optimizer when parameters are replaced, or go on using the same parameters.",
    ..CONTAINER_GROWS
};

/// As [`CONTAINER_GROWS`], of the state of an optimizer.
pub const OPTIMIZER_STATE_GROWS: GrowthPattern = GrowthPattern {
    what: "{owner}, the state of an optimizer, grows",
    advice: "The optimizer needs the state of what it trains. That grows while more parameters are trained, as when \
             layers are unfrozen one by one, and while a history fills, as that of LBFGS (`history_size`). If \
             parameters are replaced, it keeps the state of the old ones: make a new optimizer then.",
    ..CONTAINER_GROWS
};

/// As [`CONTAINER_GROWS`], of arrays.
pub const ARRAYS_ACCUMULATE: GrowthPattern = GrowthPattern {
    name: "container-grows",
    what: "{owner} accumulates arrays",
    advice: "Limit its size (`collections.deque(maxlen=...)`), clear it, or write the arrays to disk.",
    keeps_graphs: false,
};

/// As [`TENSOR_GROWS`], of arrays.
pub const ARRAY_GROWS: GrowthPattern = GrowthPattern {
    name: "tensor-grows",
    what: "{owner} is replaced by a longer array again and again",
    advice: "Keep the part that you need (`past = past[-n:]`), start again with each sequence, or \
             write into an array of fixed length. Each concatenation also copies all of it.",
    keeps_graphs: false,
};
