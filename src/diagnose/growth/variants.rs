//! Patterns that have the page of another one and say something more particular.

use super::{
    CONTAINER_GROWS, GrowthPattern, MODEL_COPIES, OBJECTS_ACCUMULATE, STATE_NOT_DETACHED,
    THREADS_GROW,
};

impl GrowthPattern {
    /// What to change in what grows: only of a list, or of a deque, the advice names `collections.deque`.
    pub fn advice_for(&self, is_list: bool) -> String {
        match is_list {
            true => self.advice.to_owned(),
            false => without_deque(self.advice),
        }
    }
}

/// An advice of what cannot become a deque.
pub fn without_deque(advice: &str) -> String {
    advice.replace(" (`collections.deque(maxlen=...)`)", "")
}

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

/// As [`CONTAINER_GROWS`], of what stays for as long as a key.
pub const WEAK_KEYS_STAY: GrowthPattern = GrowthPattern {
    advice: "An entry goes when its key does: what keeps the keys keeps the tensors. Delete the keys when they are \
             no longer needed, or keep fewer of them. `cyclescope.why_alive(key)` says what keeps one.",
    ..CONTAINER_GROWS
};

/// As [`CONTAINER_GROWS`], of an object that gets more and more attributes.
pub const ATTRIBUTES_ACCUMULATE: GrowthPattern = GrowthPattern {
    what: "{owner} gets more and more attributes, which are tensors",
    advice: "Store what each step makes in the same attribute, which replaces the one before, or delete attributes \
             that are no longer needed (`delattr`).",
    ..CONTAINER_GROWS
};

/// As [`CONTAINER_GROWS`], of the head of a chain.
pub const CHAIN_GROWS: GrowthPattern = GrowthPattern {
    what: "{owner} leads to more and more tensors",
    advice: "Each object keeps the one before it, and so all of them. Set that reference to None when the one before \
             is no longer needed, or keep only what you need of it.",
    ..CONTAINER_GROWS
};

/// As [`CONTAINER_GROWS`], of leaves that are no parameters of modules.
pub const LEAVES_ACCUMULATE: GrowthPattern = GrowthPattern {
    what: "{owner} accumulates tensors that require gradients",
    advice: "Limit its size (`collections.deque(maxlen=...)`), or clear it. Of a tensor whose gradient is no longer \
             needed, store `.detach()`: the tensor itself keeps its gradient too.",
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
             parameters are replaced, it keeps the state of the old ones: make a new optimizer then. If each step \
             appends to a list of it, limit that list.",
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

/// As [`ARRAYS_ACCUMULATE`], of views that show a small part of what they keep.
pub const VIEWS_OF_ARRAYS_ACCUMULATE: GrowthPattern = GrowthPattern {
    what: "{owner} accumulates arrays that are views of larger arrays",
    advice: "Store `.copy()` of each view, which keeps its own part only: a view keeps the whole array alive. If \
             that is still too much, limit the size of the container (`collections.deque(maxlen=...)`), or \
             clear it.",
    ..ARRAYS_ACCUMULATE
};

/// As [`OBJECTS_ACCUMULATE`], of what has no weak references, such as strings and tuples.
pub const VALUES_ACCUMULATE: GrowthPattern = GrowthPattern {
    advice: "Limit its size (`collections.deque(maxlen=...)`), delete entries that are no longer needed, or \
             write them to disk.",
    ..OBJECTS_ACCUMULATE
};

/// As [`CONTAINER_GROWS`], of threads.
pub const KEPT_BY_THREADS: GrowthPattern = GrowthPattern {
    what: "{owner} accumulates threads that have not ended, and what these keep",
    advice: THREADS_GROW.advice,
    ..CONTAINER_GROWS
};

/// As [`CONTAINER_GROWS`], of a queue.
pub const QUEUE_GROWS: GrowthPattern = GrowthPattern {
    what: "{owner}, a queue, is given more than is taken out of it",
    advice: "Give the queue a limit (`maxsize=`), so that what fills it waits, or take out more. If it is the queue \
             of an executor, wait for results before you submit more.",
    ..CONTAINER_GROWS
};

/// As [`CONTAINER_GROWS`], of the calls of a `unittest.mock.Mock`.
pub const CALLS_OF_MOCK_ACCUMULATE: GrowthPattern = GrowthPattern {
    what: "{owner}, the calls of a mock, accumulates the arguments of each call",
    advice: "A mock keeps the arguments of all its calls, in several lists: call its `reset_mock()` when they are \
             no longer needed, or put a plain function in its place.",
    ..CONTAINER_GROWS
};

/// As [`CONTAINER_GROWS`], of what `weakref.finalize` is to call.
pub const FINALIZERS_ACCUMULATE: GrowthPattern = GrowthPattern {
    what: "{owner} accumulates finalizers, and what these keep",
    advice: "A finalizer keeps its function and the arguments until its object has gone. Give it only what it needs, \
             make one for each object, or call `detach()` on what `weakref.finalize()` returned.",
    ..CONTAINER_GROWS
};

/// As [`CONTAINER_GROWS`], of what an event loop is to call.
pub const CALLBACKS_WAIT: GrowthPattern = GrowthPattern {
    what: "{owner} accumulates callbacks that wait in the event loop, and what these keep",
    advice: "Cancel what is no longer needed: `cancel()` of the task, or of the handle that `call_later()` \
             returned.",
    ..CONTAINER_GROWS
};

/// As [`CONTAINER_GROWS`], of what an event loop has too.
pub const TASKS_WAIT: GrowthPattern = GrowthPattern {
    what: "{owner} accumulates tasks or timers that wait in the event loop, and what these keep",
    advice: "`cancel()` each that is no longer needed: the event loop has them too, so that removing them from the \
             container is not enough. Or let fewer wait at a time (`asyncio.Semaphore`).",
    ..CONTAINER_GROWS
};

/// As [`CONTAINER_GROWS`], of what an exit stack is to call.
pub const EXIT_CALLBACKS_ACCUMULATE: GrowthPattern = GrowthPattern {
    what: "{owner} accumulates what an exit stack is to call, and what this keeps",
    advice: "An exit stack keeps what was entered and registered until it is closed. Make one for each step (`with \
             contextlib.ExitStack() as stack:`), or close it sooner.",
    ..CONTAINER_GROWS
};

/// As [`CONTAINER_GROWS`], of what one iterator of `itertools.tee` has taken and another has not.
pub const TEE_GROWS: GrowthPattern = GrowthPattern {
    what: "{owner}, an iterator of `itertools.tee`, is further and further behind another",
    advice: "It keeps what another has taken and it has not. Take from all at the same rate, or delete those that are \
             no longer needed.",
    ..CONTAINER_GROWS
};

/// As [`CONTAINER_GROWS`], of the buffers of a module.
pub const BUFFERS_ACCUMULATE: GrowthPattern = GrowthPattern {
    what: "{owner} gets more and more buffers",
    advice: "Register what each step makes under the same name, which replaces the one before, or delete buffers \
             that are no longer needed (`delattr(module, name)`).",
    ..CONTAINER_GROWS
};

/// As [`STATE_NOT_DETACHED`], of a gradient that is added to and never cleared.
pub const GRADIENT_WITH_GRAPH: GrowthPattern = GrowthPattern {
    advice: "After `backward(create_graph=True)`, a gradient has a graph of its own, and the next such call, which adds \
             to it, makes that longer. Set `.grad` to None in each step (`optimizer.zero_grad()`), or use \
             `torch.autograd.grad(loss, parameters, create_graph=True)`, which does not add to `.grad`.",
    ..STATE_NOT_DETACHED
};
