//! The patterns of growth, and the advice for each. The doc comment of each is the page that
//! `cyclescope explain` prints.

pub mod variants;

use crate::model::growth::CACHED;

/// The owner of what is counted of the whole process.
pub const PROCESS: &str = "the process";

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
    /// Its name, as in reports and `cyclescope explain`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The same of objects that are no tensors.
    pub fn of_objects(self) -> Self {
        Self {
            name: OBJECTS_ACCUMULATE.name,
            ..self
        }
    }

    /// What happens, in one line.
    pub fn summary(&self, owner: &str, hook: &str, evidence: &str) -> String {
        let owner = owner.strip_suffix(CACHED).unwrap_or(owner);
        // The names of variables are marked as such already, those of classes are not.
        let owner = match owner.contains('`') || owner == PROCESS {
            true => owner.to_owned(),
            false => format!("`{owner}`"),
        };
        let what = self.what.replace("{hook}", hook);
        let what = what.replacen("{owner}", &owner, 1);
        match evidence.is_empty() {
            true => what,
            false => format!("{what} ({evidence})"),
        }
    }
}

/// Every pattern that has a name of its own.
pub const PATTERNS: &[GrowthPattern] = &[
    KEPT_WITH_GRAPH,
    EVALUATION_WITH_GRAPH,
    GRAPH_RETAINED,
    STATE_NOT_DETACHED,
    UNCOLLECTABLE_CYCLES,
    GARBAGE_ACCUMULATES,
    GRADIENTS_NEVER_CLEARED,
    ACTIVATIONS_KEPT_BY_HOOK,
    ACTIVATION_ON_MODULE,
    GRAD_FN_KEPT,
    MODEL_COPIES,
    TENSOR_GROWS,
    EXCEPTIONS_KEPT,
    CONTAINER_GROWS,
    OBJECTS_ACCUMULATE,
    CACHE_WITHOUT_LIMIT,
    THREADS_GROW,
    FILES_GROW,
];

/// # Tensors kept with their graphs
///
/// A container accumulates losses, metrics or outputs, each with its autograd graph.
///
/// **Why it grows.** A tensor that requires gradients refers to its graph (`grad_fn`), and the graph to all
/// tensors that were saved for the backward pass. A scalar loss can keep a whole forward pass alive.
///
/// ```python
/// history.append(loss)
/// ```
///
/// Instead, store numbers, or tensors without their graphs:
///
/// ```python
/// history.append(loss.item())
/// outputs.append(output.detach())
/// ```
pub const KEPT_WITH_GRAPH: GrowthPattern = GrowthPattern {
    name: "kept-with-graph",
    what: "{owner} accumulates tensors together with their autograd graphs",
    advice: "Store numbers: `.item()` of a loss or metric. Of a tensor that you need, store `.detach()`, and limit \
             how many are kept. A tensor that is not detached keeps its graph and all tensors saved for the \
             backward pass.",
    keeps_graphs: true,
};

/// # Evaluation that records graphs
///
/// A container accumulates outputs of a model in evaluation mode, together with their autograd graphs.
///
/// **Why it grows.** `model.eval()` changes layers such as dropout, but autograd goes on recording. Each
/// output keeps its graph, and with it the activations of the whole forward pass.
///
/// ```python
/// model.eval()
/// for batch in loader:
///     outputs.append(model(batch))
/// ```
///
/// Instead, turn recording off:
///
/// ```python
/// model.eval()
/// with torch.inference_mode():  # or torch.no_grad()
///     for batch in loader:
///         outputs.append(model(batch))
/// ```
pub const EVALUATION_WITH_GRAPH: GrowthPattern = GrowthPattern {
    name: "evaluation-with-graph",
    what: "{owner} accumulates outputs of a model in evaluation mode together with their graphs",
    advice: "Unless they are trained on, compute them under `with torch.no_grad():` or \
             `torch.inference_mode()`; `model.eval()` alone does not stop autograd from recording.",
    keeps_graphs: true,
};

/// # Graphs kept by `retain_graph=True`
///
/// A container accumulates tensors whose graphs still have what was saved for the backward pass, and some
/// running code passes `retain_graph`.
///
/// **Why it grows.** `backward()` frees the saved tensors of a graph. With `retain_graph=True` they stay as
/// long as any tensor of the graph is alive.
///
/// ```python
/// loss.backward(retain_graph=True)
/// history.append(loss)
/// ```
///
/// Instead, remove `retain_graph=True`; for two backward passes, add the losses:
///
/// ```python
/// (loss + penalty).backward()
/// history.append(loss.item())
/// ```
pub const GRAPH_RETAINED: GrowthPattern = GrowthPattern {
    name: "graph-retained",
    what: "{owner} accumulates tensors with graphs that no backward pass has freed",
    advice: "If a backward pass ran through them, `retain_graph=True` kept them: remove it. If none did, \
             store numbers or `.detach()` the tensors. Each graph keeps all tensors saved for the backward \
             pass while any of its tensors is alive.",
    keeps_graphs: true,
};

/// # State that is never detached
///
/// A tensor that is carried from step to step has an autograd graph that becomes longer with every step.
///
/// **Why it grows.** Each new value is computed from the previous one, so its graph contains the graphs of
/// all earlier steps, back to the first.
///
/// ```python
/// hidden = rnn(batch, hidden)
/// total = total + loss
/// ```
///
/// Instead, cut the graph at the end of each step:
///
/// ```python
/// hidden = hidden.detach()  # each tensor, if it is a tuple
/// total += loss.item()
/// ```
///
/// After `backward(create_graph=True)` a gradient has such a graph too. Set `.grad` to `None` in each step.
pub const STATE_NOT_DETACHED: GrowthPattern = GrowthPattern {
    name: "state-not-detached",
    what: "{owner} has an autograd graph that grows with every step",
    advice: "Detach the state that is carried from step to step: `state = state.detach()` (each \
             tensor of a tuple), or `.item()` for a running total. Otherwise its graph reaches \
             back to the first step.",
    keeps_graphs: false,
};

/// # Cycles that no collection frees
///
/// Every step leaves tensors in a reference cycle that the garbage collector does not know.
///
/// **Why it grows.** The collector sees the references of Python objects. The reference from a computed tensor to its
/// hooks is in C++: a hook that captures its tensor looks as if it were still in use, so no collection frees either.
///
/// ```python
/// output.register_hook(lambda grad: grad / output.norm())
/// ```
///
/// Instead, capture what the hook needs of the tensor, without its graph:
///
/// ```python
/// norm = output.detach().norm()
/// output.register_hook(lambda grad: grad / norm)
/// ```
///
/// Or remove the hook once it has run: `handle = output.register_hook(hook)`, `handle.remove()`. After
/// `backward(create_graph=True)`, the cycle is that of a parameter and its gradient: set `.grad` to `None`.
pub const UNCOLLECTABLE_CYCLES: GrowthPattern = GrowthPattern {
    name: "uncollectable-cycles",
    what: "cycles that contain {owner} grow in number with every step, and no collection frees them",
    advice: "The cycles pass through C or C++, as where a hook captures its tensor. Capture the \
             values that the hook needs (`tensor.detach()`), or remove the hook when it has run \
             (`handle.remove()`). After `backward(create_graph=True)`, set `.grad` to None.",
    keeps_graphs: true,
};

/// # Garbage that waits for the garbage collector
///
/// Every step leaves tensors in a reference cycle, and no collection has freed them so far.
///
/// **Why it grows.** Objects in a cycle stay until the garbage collector finds them. It does not know how large
/// they are, seldom looks at old objects and, after `gc.disable()`, runs only when it is called.
///
/// ```python
/// class Batch:
///     def __init__(self, data):
///         self.data = data
///         self.transform = lambda: self.data * 2
/// ```
///
/// Instead, remove the cycle: `find_tensor_cycles()` says which reference it is.
///
/// ```python
/// def transform(self):
///     return self.data * 2
/// ```
///
/// Until that is done, call `gc.collect()` now and then.
pub const GARBAGE_ACCUMULATES: GrowthPattern = GrowthPattern {
    name: "garbage-accumulates",
    what: "garbage that contains {owner} waits for the garbage collector, more of it with every step",
    advice: "Reference cycles keep it: `cyclescope.find_tensor_cycles()` says which reference makes each, and what \
             to change. Until then, `gc.collect()` frees it.",
    keeps_graphs: false,
};

/// # Gradients that are never cleared
///
/// Every step adds to the gradients of a model, and none resets them.
///
/// **Why it grows.** `backward()` adds to `.grad`. Without `zero_grad()`, each step trains with the sum of
/// all earlier gradients, and the gradients stay allocated during the forward pass.
///
/// ```python
/// loss.backward()
/// optimizer.step()
/// ```
///
/// Instead, clear them once per step:
///
/// ```python
/// loss.backward()
/// optimizer.step()
/// optimizer.zero_grad()  # frees them: set_to_none=True is the default
/// ```
pub const GRADIENTS_NEVER_CLEARED: GrowthPattern = GrowthPattern {
    name: "gradients-never-cleared",
    what: "the gradients of {owner} accumulate from step to step and are not cleared",
    advice: "Call `optimizer.zero_grad()` after each `optimizer.step()`, with the optimizer that has these \
             parameters. If none has, call `requires_grad_(False)` on the module. Otherwise each step trains \
             with the sum of all earlier gradients, or computes gradients that nobody uses.",
    keeps_graphs: false,
};

/// # Activations kept by a hook
///
/// A hook of a module stores the activations that it sees in a container that is never emptied.
///
/// **Why it grows.** The hook runs in every forward pass. Each activation that it stores keeps its graph, and
/// with it the rest of that pass.
///
/// ```python
/// layer.register_forward_hook(lambda module, inputs, output: kept.append(output))
/// ```
///
/// Instead, keep only the last one, without its graph, and remove the hook when it is no longer needed:
///
/// ```python
/// def keep(module, inputs, output):
///     last["output"] = output.detach()
///
///
/// handle = layer.register_forward_hook(keep)
/// ...
/// handle.remove()
/// ```
pub const ACTIVATIONS_KEPT_BY_HOOK: GrowthPattern = GrowthPattern {
    name: "activations-kept-by-hook",
    what: "{owner}, which is filled by a hook of {hook}, accumulates activations",
    advice: "Make the hook keep only the last activation, or `.detach()` what it keeps and clear \
             it in each step. Call `remove()` on the hook's handle when the hook is no longer \
             needed.",
    keeps_graphs: true,
};

/// # Activation stored on a module
///
/// An attribute of a module refers to an activation with its graph from one step to the next.
///
/// **Why it matters.** The graph stays in memory through the next forward pass, so that two are alive at the
/// same time. With checkpointing, it also keeps the tensors that checkpointing was meant to free.
///
/// ```python
/// def forward(self, x):
///     self.features = self.encoder(x)
///     return self.head(self.features)
/// ```
///
/// Instead, use a local variable, or store the values only:
///
/// ```python
/// features = self.encoder(x)
/// self.features = features.detach()
/// return self.head(features)
/// ```
pub const ACTIVATION_ON_MODULE: GrowthPattern = GrowthPattern {
    name: "activation-on-module",
    what: "{owner} keeps an activation with its graph from one step to the next",
    advice: "Keep the activation in a local variable, or store `.detach()` of it. On the module \
             it keeps its graph through the next forward pass, and with checkpointing also the \
             tensors that checkpointing was meant to free.",
    keeps_graphs: false,
};

/// # Stored autograd nodes
///
/// A container accumulates autograd nodes (`grad_fn`).
///
/// **Why it grows.** A node refers to the next nodes and to its saved tensors, so that it keeps its whole graph
/// alive, even if the tensor itself is gone.
///
/// ```python
/// nodes.append(loss.grad_fn)
/// ```
///
/// Instead, store the facts that you need:
///
/// ```python
/// nodes.append(loss.grad_fn.name())
/// ```
pub const GRAD_FN_KEPT: GrowthPattern = GrowthPattern {
    name: "grad-fn-kept",
    what: "{owner} accumulates autograd nodes (`grad_fn`)",
    advice: "Store the facts that you need, such as `grad_fn.name()`: a node keeps its whole \
             graph alive.",
    keeps_graphs: true,
};

/// # Copies of a model
///
/// A container accumulates tensors that require gradients as parameters do, or the values of state
/// dictionaries: copies of a model, as a rule.
///
/// **Why it grows.** `copy.deepcopy(model)` and clones of a `state_dict()` copy all parameters, on the same
/// device. Each copy that is kept takes as much memory as the model.
///
/// ```python
/// best.append(copy.deepcopy(model.state_dict()))
/// ```
///
/// Instead, keep one copy and overwrite it, or write checkpoints to disk:
///
/// ```python
/// for kept, value in zip(best.parameters(), model.parameters()):
///     kept.data.copy_(value)
/// torch.save(model.state_dict(), path)
/// ```
///
/// Move a copy that must stay to the CPU.
pub const MODEL_COPIES: GrowthPattern = GrowthPattern {
    name: "model-copies",
    what: "{owner} accumulates tensors like the parameters of a model",
    advice: "If they are copies of a model, keep one and overwrite it with `copy_`, or write \
             checkpoints to disk. Move what must stay to the CPU, and remove the rest.",
    keeps_graphs: false,
};

/// # A container that only grows
///
/// A list, dictionary or other container accumulates more and more tensors or arrays.
///
/// **Why it grows.** The container is alive as long as its owner, a module or a trainer for example, and
/// nothing removes from it.
///
/// ```python
/// self.outputs.append(output)
/// ```
///
/// Instead, limit its size, clear it, or move what must stay off the device:
///
/// ```python
/// self.outputs = collections.deque(maxlen=100)
/// self.outputs.clear()  # at the end of an epoch
/// self.outputs.append(output.cpu())
/// ```
///
/// Where the program's source limits or empties the container, such as by `if len(cache) > limit: cache.popitem()` or
/// `self.outputs.clear()`, it is reported only if it goes beyond the limit, or grows for ten times as long. Any other cache
/// that takes more than about ten samples to fill looks like a leak. If most of it is released, or nothing is added for as
/// long as it took to find it, the report is withdrawn.
pub const CONTAINER_GROWS: GrowthPattern = GrowthPattern {
    name: "container-grows",
    what: "{owner} accumulates tensors",
    advice: "Limit its size (`collections.deque(maxlen=...)`), clear it, or move the tensors to \
             the host with `.cpu()`.",
    keeps_graphs: false,
};

/// # Exceptions that are kept
///
/// A container accumulates exceptions, and their tracebacks keep tensors.
///
/// **Why it grows.** The traceback of an exception keeps the frame of each call that the exception passed, and a
/// frame keeps all its local variables.
///
/// ```python
/// except ValueError as error:
///     self.failures.append(error)
/// ```
///
/// Instead, keep what you need of the exception, or the exception without its traceback:
///
/// ```python
/// except ValueError as error:
///     self.failures.append(str(error))
///     self.failures.append(error.with_traceback(None))
/// ```
pub const EXCEPTIONS_KEPT: GrowthPattern = GrowthPattern {
    name: "exceptions-kept",
    what: "{owner} accumulates exceptions whose tracebacks keep tensors",
    advice: "Store what you need of an exception, such as `str(error)`, or \
             `error.with_traceback(None)`: its traceback keeps the frames of all calls that it \
             passed, with their local variables.",
    keeps_graphs: false,
};

/// # A tensor that becomes longer
///
/// A variable has a longer tensor again and again.
///
/// **Why it grows.** `torch.cat` of the old tensor and something new is longer than before. It also copies all
/// of the old one, so that both are in memory for a moment.
///
/// ```python
/// past = torch.cat([past, keys], dim=1)
/// ```
///
/// Instead, keep the part that you need, start again with each sequence, or write into a tensor of fixed
/// length:
///
/// ```python
/// past = torch.cat([past, keys], dim=1)[:, -window:]
/// past[:, position] = keys
/// ```
pub const TENSOR_GROWS: GrowthPattern = GrowthPattern {
    name: "tensor-grows",
    what: "{owner} is replaced by a longer tensor again and again",
    advice: "Keep the part that you need (`past = past[-n:]`), start again with each sequence, or \
             write into a tensor of fixed length. Each `torch.cat` also copies all of it.",
    keeps_graphs: false,
};

/// # Objects that accumulate
///
/// A container accumulates more and more Python objects that are not tensors. They take host memory only, but
/// more in every step, and the garbage collector passes over all of them again and again.
///
/// **Why it grows.** The container is alive as long as its owner, and nothing removes from it: a log of all
/// steps, a registry in which objects are entered and never deleted, a key that never comes again.
///
/// ```python
/// self.events.append(Event(step, batch))
/// registry[id(request)] = request
/// ```
///
/// Instead, limit it, write it out, or let each entry disappear with its object:
///
/// ```python
/// self.events = collections.deque(maxlen=1000)
/// registry = weakref.WeakValueDictionary()
/// ```
///
/// It is reported if the number of live objects of one type keeps growing and they are of every age, or if a container
/// of strings and numbers becomes longer at a steady rate. The report is withdrawn if the container is released or stops
/// growing.
pub const OBJECTS_ACCUMULATE: GrowthPattern = GrowthPattern {
    name: "objects-accumulate",
    what: "{owner} accumulates objects",
    advice: "Limit its size (`collections.deque(maxlen=...)`), delete entries that are no longer \
             needed, or hold the objects weakly (`weakref.WeakValueDictionary`).",
    keeps_graphs: false,
};

/// # A cache without limit
///
/// A function that `functools.cache` or `lru_cache(maxsize=None)` decorates keeps the results of all calls.
///
/// **Why it grows.** Each call with new arguments adds a result, and the cache keeps the arguments too. Arguments
/// that never come again, such as a step number or a new object, make the cache useless and ever larger.
///
/// ```python
/// @functools.cache
/// def layout(spec, step): ...
/// ```
///
/// Instead, give it a limit, and leave out arguments that differ in every call:
///
/// ```python
/// @functools.lru_cache(maxsize=256)
/// def layout(spec): ...
/// ```
pub const CACHE_WITHOUT_LIMIT: GrowthPattern = GrowthPattern {
    name: "cache-without-limit",
    what: "{owner} caches results without limit",
    advice: "Give the cache a limit, `functools.lru_cache(maxsize=...)`, and leave out arguments \
             that differ in every call. `cache_clear()` frees what it holds now.",
    keeps_graphs: false,
};

/// # A growing number of threads
///
/// The process has more and more threads.
///
/// **Why it grows.** A thread that waits on a queue or a lock never ends by itself, and an executor that is not
/// shut down keeps its threads. Each has a stack of its own and keeps what its function refers to.
///
/// ```python
/// executor = concurrent.futures.ThreadPoolExecutor()  # in each step
/// ```
///
/// Instead, make one for the whole run, or end it:
///
/// ```python
/// with concurrent.futures.ThreadPoolExecutor() as executor:
///     ...
/// ```
pub const THREADS_GROW: GrowthPattern = GrowthPattern {
    name: "threads-grow",
    what: "{owner} has more and more threads",
    advice: "End each thread that a step starts: shut executors down (`with`), and stop data \
             loaders and timers, or make them once for the whole run. A thread keeps its local \
             variables, and the tensors in them, until it ends. `threading.enumerate()` lists the \
             Python threads.",
    keeps_graphs: false,
};

/// # Files that stay open
///
/// The process has more and more open file descriptors: files, sockets, pipes, shared memory.
///
/// **Why it grows.** What is opened is closed when its Python object goes, or by `close()`. An object that something
/// keeps stays open, until the limit of the process (`ulimit -n`) makes the next `open` fail.
///
/// ```python
/// logs.append(open(f"step-{step}.log", "w"))
/// ```
///
/// Instead, close it:
///
/// ```python
/// with open(f"step-{step}.log", "w") as log:
///     ...
/// ```
///
/// Tensors that processes share by file descriptors take one each; `torch.multiprocessing` says how to share them
/// by name.
pub const FILES_GROW: GrowthPattern = GrowthPattern {
    name: "files-grow",
    what: "{owner} has more and more open files",
    advice: "Close what each step opens (`with open(...)`), sockets and pipes too. \
             `/proc/self/fd` lists what is open.",
    keeps_graphs: false,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_classes_are_marked_and_the_evidence_follows() {
        assert_eq!(
            GRADIENTS_NEVER_CLEARED.summary("Linear", "", "in 100 steps"),
            "the gradients of `Linear` accumulate from step to step and are not cleared (in 100 steps)"
        );
        let told = ACTIVATIONS_KEPT_BY_HOOK.summary("local `kept` in `fit`", "`Net`", "");
        assert!(told.starts_with("local `kept` in `fit`, which is filled by a hook of `Net`,"));
    }
}
