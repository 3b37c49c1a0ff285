//! The roots of the live heap: modules, threads and their frames, contexts.

use pyo3::ffi;
use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::edges::Edges;
use super::live::{Extra, Live};
use super::own::is_own_module;
use super::process::is_library_module;
use crate::capture::{ReferenceName, RunningFrame, is_in_package, thread_names};
use crate::cpython::instances::attribute;
use crate::cpython::read::printable;
use crate::cpython::{
    Builtins, ObjectKind, dict_items, find_item, imported, int_value, module_dict, text_of,
};

/// How the words of a thread begin, and of one that waits for its time.
pub(super) const THREAD: &str = "thread";
pub(super) const TIMER: &str = "pending timer";

impl<'py> Live<'py> {
    pub(super) fn find_modules(&mut self, py: Python<'py>) {
        // SAFETY: attached; the dict is borrowed from the interpreter.
        let modules = unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyImport_GetModuleDict()) };
        let Some(modules) = modules else { return };
        let mut own = Vec::new();
        let mut dicts = FxHashMap::default();
        dict_items(&modules, &mut |name, module| {
            if let (Some(name), Some(node)) = (text_of(name), self.objects.number_of(module))
                && !is_own_module(&name)
            {
                let rank = (name != "__main__", is_library_module(module));
                own.push((rank, (node, name)));
                if let Some(dict) = self.objects.number_at(module_dict(module)) {
                    dicts.insert(node, dict);
                }
            }
            true
        });
        // Stable: of two names for one module the first stays.
        own.sort_by_key(|(rank, _)| *rank);
        self.modules = own.into_iter().map(|(_, module)| module).collect();
        self.module_dicts = dicts;
    }

    /// True if the C code of a module refers to an object, which is not among the module's variables then.
    pub fn is_of_c(&self, module: u32, to: u32) -> bool {
        self.module_dicts
            .get(&module)
            .is_some_and(|dict| *dict != to)
    }

    /// Takes the running threads that `threading` knows for roots: their own frames and its registries, which
    /// hold them as well, go with them.
    pub(super) fn find_threads(&mut self, py: Python<'py>, builtins: &Builtins) {
        self.threads = thread_names(py, builtins);
        let Some(threading) = imported(intern!(py, "threading")) else {
            return;
        };
        let part = |name: &str| find_item(name, |f| dict_items(threading.as_any(), f));
        let (Some(active), timer) = (part("_active"), part("Timer")) else {
            return;
        };
        let mut found = Vec::new();
        dict_items(&active, &mut |number, thread| {
            let number = int_value(number).map(|number| number as u64);
            if let (Some(node), Some(number)) = (self.objects.number_of(thread), number) {
                let name =
                    attribute(&builtins.instances, thread, "_name").and_then(|name| text_of(&name));
                let name = printable(&name.unwrap_or_default());
                let mut of_thread = self.frames.iter().filter(|frame| frame.thread == number);
                let waits = of_thread.all(is_of_threading);
                let is_timer = timer.as_ref().is_some_and(|it| thread.get_type().is(it));
                let what = if is_timer && waits { TIMER } else { THREAD };
                found.push((node, number, format!("{what} `{name}`")));
            }
            true
        });
        for (node, number, words) in found {
            if !self.is_own_thread(number) {
                self.library.push((node, words));
            }
        }
    }

    /// Takes the contexts that C holds for roots: those that threads are in.
    pub(super) fn find_contexts(&mut self, py: Python<'py>) {
        let context = imported(intern!(py, "_contextvars"));
        let context =
            context.and_then(|names| find_item("Context", |f| dict_items(names.as_any(), f)));
        let Some(context) = context else { return };
        for node in 0..self.objects.len() as u32 {
            if self.unaccounted(node) > 0
                && let Some(address) = self.objects.address(node)
            {
                let object = address as *mut ffi::PyObject;
                // SAFETY: attached; the object is held.
                if unsafe { ffi::Py_TYPE(object).cast() } == context.as_ptr() {
                    self.library.push((node, "context of a thread".to_owned()));
                }
            }
        }
    }

    pub(super) fn find_frames(&mut self, py: Python<'py>, builtins: &Builtins, edges: &mut Edges) {
        self.give_generators_to_frames(builtins);
        for index in 0..self.frames.len() {
            let frame = &self.frames[index];
            let is_own = frame.place.as_ref().is_some_and(|place| {
                is_in_package(py, &place.file)
                    || is_of_threading(frame)
                        && (self.is_own_thread(frame.thread) || self.runs_thread(frame))
            });
            let known = self.objects.number_at(frame.address);
            let node = known.unwrap_or(self.next());
            // The frame of a generator on 3.10, say.
            let shows_itself = !self.objects.graph.targets(node).is_empty();
            let variables = frame
                .variables
                .iter()
                .map(|(name, address)| (ReferenceName::Local(name.clone()), *address));
            let parts = frame.parts.iter().cloned();
            let held: Vec<(ReferenceName, u32)> = variables
                .chain(parts)
                .filter_map(|(name, address)| Some((name, self.objects.number_at(address)?)))
                .collect();
            for (name, target) in held {
                if shows_itself {
                    break;
                }
                self.account_for(target, 1);
                match name {
                    _ if is_own => {}
                    ReferenceName::Local(_) => edges.add_again(node, target, name),
                    _ => edges.add(node, target, name),
                }
            }
            if !is_own {
                if known.is_none() {
                    self.extra.push(Extra::Frame(index));
                }
                self.frame_nodes.push((node, index));
            }
        }
        self.give_frames_to_greenlets(edges);
    }

    /// The variable of a running frame by which it refers to an object, after so many others of its variables do.
    pub fn variable(&self, frame: u32, to: u32, others: usize) -> Option<ReferenceName> {
        let (_, frame) = self.program_frames().find(|(node, _)| *node == frame)?;
        let mut variables = frame
            .variables
            .iter()
            .filter(|(_, address)| self.objects.number_at(*address) == Some(to));
        let (name, _) = variables.nth(others)?;
        Some(ReferenceName::Local(name.clone()))
    }

    /// Takes the frames of suspended greenlets for a part of these, with which they go, unless C holds those too.
    fn give_frames_to_greenlets(&mut self, edges: &mut Edges) {
        let mut running = Vec::new();
        for (node, index) in std::mem::take(&mut self.frame_nodes) {
            match self.objects.number_at(self.frames[index].greenlet) {
                Some(greenlet) if self.unaccounted(greenlet) == 0 => {
                    let name = ReferenceName::Attribute("gr_frame".to_owned());
                    self.add_hidden(greenlet, node, name, edges);
                }
                _ => running.push((node, index)),
            }
        }
        self.frame_nodes = running;
    }

    /// Takes what generators and coroutines that run refer to from them: these are the variables of their frames and go
    /// with them, whatever refers to the generator. Their `tp_traverse` shows the frame's references as theirs, if only
    /// while they call something (`gen_traverse` in Objects/genobject.c).
    fn give_generators_to_frames(&mut self, builtins: &Builtins) {
        let is_generator = |&node: &u32| {
            let object = self.objects.object(node);
            object.is_some_and(|object| {
                use ObjectKind::{AsyncGenerator, Coroutine, Generator};
                // SAFETY: attached, the object and its type are alive.
                let kind = unsafe { builtins.kind(ffi::Py_TYPE(object.as_ptr())) };
                matches!(kind, Generator | Coroutine | AsyncGenerator)
            })
        };
        let frames = self.frames.iter();
        let running = frames.filter_map(|frame| self.objects.number_at(frame.suspended));
        let running: FxHashSet<u32> = running.filter(is_generator).collect();
        self.objects.release(&running);
    }

    /// True for a call in which `threading` runs a thread that is a root by itself.
    fn runs_thread(&self, frame: &RunningFrame) -> bool {
        let mut variables = frame.variables.iter();
        let this = variables.find(|(name, _)| name == "self");
        let this = this.and_then(|(_, address)| self.objects.number_at(*address));
        this.is_some_and(|this| self.library.iter().any(|(node, _)| *node == this))
    }

    /// True for a thread that cyclescope has started.
    fn is_own_thread(&self, number: u64) -> bool {
        let name = self.threads.iter().find(|(thread, _)| *thread == number);
        name.is_some_and(|(_, name)| name.starts_with("cyclescope-"))
    }
}

/// True for a call of a function of the module `threading`.
fn is_of_threading(frame: &RunningFrame) -> bool {
    let place = frame.place.as_ref();
    place.is_some_and(|place| place.file.ends_with("threading.py"))
}
