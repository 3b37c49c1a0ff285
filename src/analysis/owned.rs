//! What PyTorch owns behind the objects that Python sees: gradients, autograd graphs, hooks.

use pyo3::prelude::*;
use pyo3::types::PyCFunction;
use rustc_hash::FxHashSet;

use super::Inspector;
use super::edges::Edges;
use super::live::{Extra, Live};
use super::packed::UnpackHooks;
use crate::analysis::live::Depth;
use crate::capture::{ReferenceName, RunningFrame, running_frames};
use crate::cpython::instances::{attributes, instance_dict};
use crate::cpython::{Builtins, dict_items, imported, int_value};
use crate::device::{DeviceSelection, Frameworks, UNPACK_HOOK, class};

/// So many autograd functions are walked through; in longer graphs the rest is left out.
const AUTOGRAD_LIMIT: usize = 200_000;
/// What PyTorch says on a thread that has no part in a backward pass.
const NO_TASK: i64 = -1;

impl<'py> Live<'py> {
    /// Adds the dictionaries of hooks that a tensor has, or its autograd function `holder`.
    fn add_hooks<'a>(
        &mut self,
        tensor: u32,
        holder: u32,
        hooks: impl IntoIterator<Item = (&'a str, Bound<'py, PyAny>)>,
        edges: &mut Edges,
    ) {
        for (name, hooks) in hooks {
            if let Some(hooks) = self.objects.number_of(&hooks) {
                let name = ReferenceName::Attribute(name.to_owned());
                self.add_hidden(tensor, hooks, name.clone(), edges);
                if self.unaccounted(hooks) > 0 {
                    self.account_for_cpp(hooks);
                    edges.add(holder, hooks, name);
                }
            }
        }
    }

    /// Follows what C++ owns: gradients, the autograd graph with what it saved and its hooks, the
    /// tensors that others are views of, and the attributes of tensors that hide them.
    pub(super) fn find_owned(
        &mut self,
        inspector: &Inspector,
        frameworks: &Frameworks,
        depth: Depth,
        edges: &mut Edges,
    ) {
        let mut functions: Vec<u32> = Vec::new();
        let tensors = self.tensors();
        edges.tensors = tensors.iter().map(|(node, ..)| *node).collect();
        // All at once, and held from then on: what comes after may let other threads run.
        let elsewhere = self.is_autograd_at_work_elsewhere(inspector, || {
            let tracked = tensors.iter().filter(|(_, verdict, tensor)| {
                frameworks.has_grad_fn(*verdict, tensor)
                    || frameworks.requires_grad(*verdict, tensor)
            });
            let memory = tracked.filter_map(|(node, ..)| edges.memory_of.get(node));
            let mut devices = memory.map(|&index| self.buffers[index].buffer.device.as_str());
            let first = devices.next();
            devices.any(|device| Some(device) != first)
        });
        let owned: Vec<Vec<(&str, Bound<'py, PyAny>)>> = tensors
            .iter()
            .map(|(_, verdict, tensor)| {
                let is_left_alone =
                    depth == Depth::Gradients && frameworks.has_grad_fn(*verdict, tensor);
                if elsewhere || is_left_alone {
                    Vec::new()
                } else {
                    frameworks.owned(*verdict, tensor)
                }
            })
            .collect();
        for ((node, verdict, tensor), owned) in tensors.into_iter().zip(&owned) {
            let mut function = None;
            let is_leaf = !frameworks.has_grad_fn(verdict, &tensor);
            if is_leaf && let Some(&index) = edges.memory_of.get(&node) {
                self.buffers[index].is_leaf = true;
            }
            for (name, target) in owned {
                let target = if *name == "grad_fn" {
                    let found = self.function_node(target, edges, &mut functions);
                    function = Some(found);
                    Some(found)
                } else if depth == Depth::Graphs {
                    // A gradient has a graph after `backward(create_graph=True)`.
                    self.tensor_in_c(frameworks, target, edges, &mut functions)
                } else {
                    self.tensor_node(frameworks, target, edges)
                };
                let Some(target) = target else { continue };
                edges.gradients.extend((*name == "grad").then_some(target));
                if let Some(&index) = edges.memory_of.get(&target) {
                    // The parts of a sparse tensor, such as `values()`.
                    self.buffers[index].is_shown |= name.ends_with("()");
                }
                let name = ReferenceName::Attribute((*name).to_owned());
                match self.is_shown_by_attributes(&inspector.builtins, node, &tensor, target) {
                    true => self.add_in_c(node, target, name, edges),
                    false => self.add_hidden(node, target, name, edges),
                }
            }
            // The function of a tensor that is no leaf has its hooks too.
            let holder = function.unwrap_or(node);
            self.add_hooks(node, holder, frameworks.attributes(verdict, &tensor), edges);
            if self.unaccounted_before(node) {
                self.add_attributes(&inspector.builtins, node, &tensor, edges);
            }
        }
        self.mark_gradients(edges);
        if !elsewhere && depth == Depth::Graphs {
            self.add_stored_functions(edges, &mut functions);
        }
        // Another pass may have begun meanwhile; this thread's, if it is in one, has the devices it had.
        if elsewhere || self.is_autograd_at_work_elsewhere(inspector, || false) {
            self.notes.push(
                "Another thread is running a backward pass or replacing a gradient. Gradients or saved \
         tensors were not inspected."
                    .to_owned(),
            );
            self.functions = functions;
            self.functions_are_complete = false;
        } else {
            self.follow_functions(inspector, frameworks, functions, edges);
        }
        if !elsewhere && depth == Depth::Graphs {
            self.find_more_references(frameworks, edges);
        }
        self.dicts_of_functions = self.dicts_of(&inspector.builtins);
        if !self.functions.is_empty() {
            self.find_hook_dictionaries(self.objects.py());
        }
    }

    /// The dictionaries of the attributes that functions of the program's own have.
    fn dicts_of(&self, builtins: &Builtins) -> FxHashSet<u32> {
        let functions = self.functions.iter().filter_map(|&it| self.object(it));
        let dicts = functions.filter_map(|it| instance_dict(&builtins.instances, &it));
        dicts.filter_map(|it| self.objects.number_at(it)).collect()
    }

    /// Marks the memory of gradients; that of a sparse one is its parts', such as `values()`.
    fn mark_gradients(&mut self, edges: &Edges) {
        let is_part = |name: &ReferenceName| matches!(name, ReferenceName::Attribute(name) if name.ends_with("()"));
        let parts = edges.names.iter().filter_map(|(&(from, to), name)| {
            (is_part(name) && edges.gradients.contains(&from)).then_some(to)
        });
        for node in edges.gradients.iter().copied().chain(parts) {
            if let Some(&index) = edges.memory_of.get(&node) {
                self.buffers[index].is_gradient = true;
            }
        }
    }

    /// Adds the functions that the program itself refers to, such as a `grad_fn` that outlives its tensor.
    fn add_stored_functions(&mut self, edges: &mut Edges, functions: &mut Vec<u32>) {
        let stored = self.objects.holders.iter();
        let stored = stored.filter(|(_, verdict)| Frameworks::is_function(*verdict));
        let stored: Vec<_> = stored
            .filter_map(|&(node, _)| self.objects.object(node))
            .collect();
        for function in stored {
            self.function_node(&function, edges, functions);
        }
    }

    /// True if another thread is in the midst of a backward pass in which this one, unlike in a hook, has
    /// no part, or of setting an attribute, such as a gradient. PyTorch lets other threads run meanwhile,
    /// but waits for none of them when it frees what a function saved or replaces a gradient: who reads
    /// that in between reads what is gone.
    ///
    /// A backward pass has a thread for each device (`Engine::start_device_threads` in
    /// torch/csrc/autograd/engine.cpp), so that even in a hook this is not the only one if tensors that
    /// need gradients are `on_several_devices`.
    fn is_autograd_at_work_elsewhere(
        &self,
        inspector: &Inspector,
        on_several_devices: impl FnOnce() -> bool,
    ) -> bool {
        let py = self.objects.py();
        let Ok(frames) = running_frames(py, &inspector.builtins, &inspector.current_frames, false)
        else {
            return true;
        };
        if frames.iter().any(|frame| frame.sets_attribute) {
            return true;
        }
        if !frames.iter().any(runs_engine) {
            return false;
        }
        let task = backward_task(py);
        task == Some(NO_TASK) || on_several_devices()
    }

    /// Finds the dictionaries of hooks that nothing accounts for. A function in C++ does not tell
    /// which hooks it has; PyTorch keeps them in an `OrderedDict` by number
    /// (`_HookMixin._register_hook` in torch/autograd/function.py).
    fn find_hook_dictionaries(&mut self, py: Python<'py>) {
        let Some(ordered) = imported(intern!(py, "collections"))
            .and_then(|collections| class(&collections, "OrderedDict").ok())
        else {
            return;
        };
        for node in 0..self.objects.len() as u32 {
            if self.unaccounted(node) != 1 {
                continue;
            }
            let Some(object) = self.objects.object(node) else {
                continue;
            };
            if !object.get_type().is(&ordered) {
                continue;
            }
            let mut by_number = false;
            dict_items(&object, &mut |key, _| {
                by_number = int_value(key).is_some();
                by_number
            });
            if by_number {
                self.hook_dictionaries.push(node);
            }
        }
    }

    /// True for an object that C++ holds too: then a tensor does not show what it holds.
    fn unaccounted_before(&self, node: u32) -> bool {
        self.unaccounted(node) > 0 || self.counted.contains(&node)
    }

    /// Adds the attributes of a tensor that does not show them.
    fn add_attributes(
        &mut self,
        builtins: &Builtins,
        node: u32,
        tensor: &Bound<'py, PyAny>,
        edges: &mut Edges,
    ) {
        let dict = instance_dict(&builtins.instances, tensor);
        if let Some(dict) = dict.and_then(|dict| self.objects.number_at(dict)) {
            let name = ReferenceName::Attribute("__dict__".to_owned());
            self.add_hidden(node, dict, name, edges);
            return;
        }
        for (name, value) in attributes(&builtins.instances, tensor) {
            if let Some(value) = self.objects.number_of(&value) {
                self.add_hidden(node, value, ReferenceName::Attribute(name), edges);
            }
        }
    }

    fn follow_functions(
        &mut self,
        inspector: &Inspector,
        frameworks: &Frameworks,
        mut functions: Vec<u32>,
        edges: &mut Edges,
    ) {
        let mut unpack = UnpackHooks::default();
        let mut next = 0;
        while let Some(&node) = functions.get(next) {
            next += 1;
            if next > AUTOGRAD_LIMIT {
                self.functions_are_complete = false;
                self.notes.push(format!(
                    "The autograd graph has more than {AUTOGRAD_LIMIT} functions; the rest was \
                 not inspected."
                ));
                break;
            }
            let Some(function) = self.object(node) else {
                continue;
            };
            let parts = frameworks.function_parts(&inspector.builtins, &function);
            edges.some_hidden |= parts.hidden;
            for follower in &parts.next {
                let target = self.function_node(follower, edges, &mut functions);
                let name = ReferenceName::Attribute("next_functions".to_owned());
                self.add_hidden(node, target, name, edges);
            }
            if let Some(variable) = &parts.variable
                && let Some(target) = self.tensor_node(frameworks, variable, edges)
            {
                let name = ReferenceName::Attribute("variable".to_owned());
                self.add_hidden(node, target, name, edges);
            }
            for (name, saved) in &parts.saved {
                let target = match frameworks.verdict_of(saved) {
                    0 => self.objects.number_of(saved),
                    _ => self.tensor_in_c(frameworks, saved, edges, &mut functions),
                };
                let Some(target) = target else { continue };
                if let Some(&index) = edges.memory_of.get(&target) {
                    let buffer = &mut self.buffers[index];
                    buffer.is_saved = true;
                    buffer.is_result |= is_result(name);
                }
                self.add_hidden(node, target, ReferenceName::Attribute(name.clone()), edges);
                if let Some(saved) = name.strip_prefix(UNPACK_HOOK) {
                    let savers = unpack.entry(target).or_default();
                    savers.push((node, saved.to_owned()));
                }
            }
        }
        self.add_pack_hooks(inspector, unpack, edges);
        self.functions = functions;
        if edges.some_hidden {
            self.functions_are_complete = false;
            self.notes.push(
                "This version of PyTorch does not expose the saved tensors of its autograd graph, which are \
                 missing here."
                    .to_owned(),
            );
        }
    }

    /// The node of an autograd function, which is then to be followed if it is new.
    fn function_node(
        &mut self,
        function: &Bound<'py, PyAny>,
        edges: &mut Edges,
        functions: &mut Vec<u32>,
    ) -> u32 {
        let address = function.as_ptr() as usize;
        if let Some(&node) = edges.made.get(&address) {
            return node;
        }
        let node = self.objects.number_of(function).unwrap_or_else(|| {
            let node = self.next();
            self.extra.push(Extra::Function(function.clone()));
            node
        });
        edges.made.insert(address, node);
        functions.push(node);
        node
    }

    /// The node of a tensor that a tensor or a function has in C++. Of one that Python does not see, its function and the
    /// tensor that it is a view of are followed too.
    fn tensor_in_c(
        &mut self,
        frameworks: &Frameworks,
        tensor: &Bound<'py, PyAny>,
        edges: &mut Edges,
        functions: &mut Vec<u32>,
    ) -> Option<u32> {
        let next = self.next();
        let node = self.tensor_node(frameworks, tensor, edges)?;
        if node != next {
            return Some(node);
        }
        let verdict = frameworks.verdict_of(tensor);
        for (part, owned) in frameworks.owned(verdict, tensor) {
            let target = match part {
                "grad_fn" => Some(self.function_node(&owned, edges, functions)),
                // What is a view of a tensor is none of a view.
                _ => self.tensor_node(frameworks, &owned, edges),
            };
            if let Some(target) = target {
                self.add_hidden(
                    node,
                    target,
                    ReferenceName::Attribute(part.to_owned()),
                    edges,
                );
            }
        }
        Some(node)
    }

    /// The node of a tensor or array that C++ holds.
    fn tensor_node(
        &mut self,
        frameworks: &Frameworks,
        tensor: &Bound<'py, PyAny>,
        edges: &mut Edges,
    ) -> Option<u32> {
        if let Some(node) = self.objects.number_of(tensor) {
            return Some(node);
        }
        let address = tensor.as_ptr() as usize;
        if let Some(&node) = edges.made.get(&address) {
            return Some(node);
        }
        let verdict = frameworks.verdict_of(tensor);
        if verdict == 0 {
            return None;
        }
        let node = self.next();
        self.extra.push(Extra::Tensor(tensor.clone()));
        edges.made.insert(address, node);
        self.add_buffer(frameworks, node, verdict, tensor, edges);
        Some(node)
    }

    /// Takes note of the tensors that had no Python object until this look asked for them.
    pub(super) fn note_made(&self, inspector: &Inspector, frameworks: &Frameworks) {
        let mut made = inspector.made.borrow_mut();
        made.retain(|&address, _| self.objects.number_at(address).is_some());
        made.extend(self.extra.iter().filter_map(|extra| {
            let Extra::Tensor(tensor) = extra else {
                return None;
            };
            let verdict = frameworks.verdict_of(tensor);
            let buffer = frameworks.buffer(verdict, tensor, &DeviceSelection::Any)?;
            Frameworks::is_tensor(verdict).then_some((tensor.as_ptr() as usize, buffer.pointer))
        }));
    }

    /// Adds a reference in C++, unless it is one that the object shows.
    pub(super) fn add_hidden(
        &mut self,
        from: u32,
        to: u32,
        name: ReferenceName,
        edges: &mut Edges,
    ) {
        match self.objects.graph.targets(from).contains(&to) {
            true => *edges.in_c.entry(to).or_default() += 1,
            false => self.add_in_c(from, to, name, edges),
        }
    }

    /// Adds a reference in C++, which the object does not show.
    fn add_in_c(&mut self, from: u32, to: u32, name: ReferenceName, edges: &mut Edges) {
        *edges.in_c.entry(to).or_default() += 1;
        if !edges.tensors.contains(&to) || !self.counted.contains(&to) {
            self.account_for_cpp(to);
        }
        edges.add(from, to, name);
    }

    /// True for a tensor to which C++ refers otherwise than is known.
    pub(super) fn has_more_in_cpp(&self, frameworks: &Frameworks, node: u32) -> bool {
        let in_cpp = || {
            let tensor = self.object(node)?;
            frameworks.references_in_cpp(frameworks.verdict_of(&tensor), &tensor)
        };
        self.more_in_cpp.contains(&node)
            || !self.counted.contains(&node) && in_cpp().is_some_and(|it| it > 0)
    }

    /// Takes tensors for held from outside to which C++ has more references than are known. All of them count as one to the
    /// Python object, which the first that was found has accounted for.
    fn find_more_references(&mut self, frameworks: &Frameworks, edges: &Edges) {
        let tensors = self.tensors().into_iter();
        let held = tensors.filter(|(node, verdict, tensor)| {
            let known = edges.in_c.get(node);
            self.counted.contains(node)
                && known.is_some_and(|&known| {
                    let all = frameworks.references_in_cpp(*verdict, tensor);
                    all.is_some_and(|all| all > known)
                })
        });
        self.more_in_cpp = held.map(|(node, ..)| node).collect();
        for &node in &self.more_in_cpp {
            if let Some(left) = self.objects.unaccounted.get_mut(node as usize) {
                *left += 1;
            }
        }
    }

    /// True if a tensor shows an object as often as attributes of its instance are that object: what C++ has is another
    /// reference to it, as after `view.whole = view._base`.
    fn is_shown_by_attributes(
        &self,
        builtins: &Builtins,
        node: u32,
        tensor: &Bound<'py, PyAny>,
        object: u32,
    ) -> bool {
        let shown = self.objects.graph.targets(node).iter();
        let shown = shown.filter(|&&it| it == object).count();
        let is_object = |value: &Bound<'py, PyAny>| self.objects.number_of(value) == Some(object);
        shown > 0
            && attributes(&builtins.instances, tensor)
                .iter()
                .filter(|(_, value)| is_object(value))
                .count()
                == shown
    }
}

impl Inspector {
    /// True if some thread is in a backward pass, or is setting an attribute, such as a gradient.
    pub(super) fn are_gradients_in_use(&self, py: Python<'_>) -> bool {
        let frames = running_frames(py, &self.builtins, &self.current_frames, false);
        let sets = frames.map_or(true, |frames| {
            frames.iter().any(|frame| frame.sets_attribute)
        });
        sets || self.is_backward_running(py)
    }

    /// True if some thread is in a backward pass: its functions are being run, and what they saved is
    /// perhaps being released, by threads that do not hold the interpreter's lock.
    pub fn is_backward_running(&self, py: Python<'_>) -> bool {
        if backward_task(py).is_some_and(|task| task != NO_TASK) {
            return true;
        }
        let frames = running_frames(py, &self.builtins, &self.current_frames, false);
        frames.map_or(true, |frames| frames.iter().any(runs_engine))
    }
}

/// The backward pass that this thread has a part in; [`NO_TASK`] if it has none.
fn backward_task(py: Python<'_>) -> Option<i64> {
    // A function in C++, unless the program has put another in its place.
    imported(intern!(py, "torch._C"))
        .and_then(|torch| torch.get_item(intern!(py, "_current_graph_task_id")).ok()?)
        .and_then(|ask| ask.cast_into_exact::<PyCFunction>().ok())
        .and_then(|ask| int_value(&ask.call0().ok()?))
}

/// True for a call in which PyTorch runs a backward pass.
fn runs_engine(frame: &RunningFrame) -> bool {
    frame.place.as_ref().is_some_and(|place| {
        let file = place.file.replace('\\', "/");
        file.ends_with("/torch/autograd/graph.py") && frame.function == "_engine_run_backward"
            || file.ends_with("/torch/autograd/__init__.py")
    })
}

/// True for the names that PyTorch gives to results which their own function saves (`derivatives.yaml`).
fn is_result(saved: &str) -> bool {
    let name = saved.strip_prefix("saved ").unwrap_or(saved);
    let name = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    matches!(name, "result" | "output" | "log_sumexp" | "logsumexp")
}
