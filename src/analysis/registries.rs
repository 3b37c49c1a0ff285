//! What C keeps for the standard library and for PyTorch, where a function of theirs tells what that is: signal
//! handlers, modes, saved-tensor hooks, the exception that is being handled; and finalizers and loggers, which are in a
//! registry of a class of the library's.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyList, PyTuple, PyWeakrefReference};

use super::Inspector;
use super::edges::Edges;
use super::keepers::Keepers;
use super::live::{Extra, Live, Root};
use crate::capture::{ReferenceName, function_code};
use crate::cpython::instances::attribute;
use crate::cpython::read::{printable, referents};
use crate::cpython::{
    ObjectKind, class_items, dict_items, find_item, imported, int_value, items, text_of,
};
use crate::model::words::counted;

pub(super) const SIGNALS: &str = "signal handlers";
pub(super) const MODES: &str = "modes in force";
pub(super) const SAVED_TENSOR_HOOKS: &str = "saved-tensor hooks in force";
pub(super) const AT_EXIT: &str = "functions registered with atexit";
pub(super) const EVENT_LOOP: &str = "running event loop";
/// Follows the class of an exception.
pub(super) const HANDLED: &str = " that is being handled";
pub(super) const FINALIZER: &str = "finalizer `weakref.finalize`";

/// So many holders of an argument are asked whether they are a running call's.
const ASKED: usize = 4;

/// What a registry in C holds, each with the name that it has there.
type Registered<'py> = Vec<(ReferenceName, Bound<'py, PyAny>)>;

impl<'py> Live<'py> {
    /// Takes these registries for roots.
    pub(super) fn find_registries(&mut self, inspector: &Inspector, edges: &mut Edges) {
        let py = self.py();
        self.add_registry(SIGNALS, signal_handlers(py), edges);
        self.add_registry(MODES, modes(py), edges);
        self.add_registry(SAVED_TENSOR_HOOKS, saved_tensor_hooks(py), edges);
        self.find_functions_at_exit();
        self.find_event_loop();
        self.find_finalizers(inspector);
        self.find_loggers(inspector);
        self.find_handled_exception(inspector);
    }

    /// The exception that this thread handles, which needs no variable: the one of `sys.exc_info()`.
    fn find_handled_exception(&mut self, inspector: &Inspector) {
        let Some(exception) = handled_exception(self.py()) else {
            return;
        };
        if let Some(node) = self.objects.number_of(&exception)
            && self.unaccounted(node) > 0
        {
            self.account_for(node, 1);
            let class = inspector.type_name(&exception);
            self.add_library_root(node, format!("{class}{HANDLED}"));
        }
    }

    fn add_registry(&mut self, words: &str, held: Registered<'py>, edges: &mut Edges) {
        let known = held.into_iter().filter_map(|(name, object)| {
            let node = self.objects.number_of(&object)?;
            (self.unaccounted(node) > 0).then_some((name, node))
        });
        let known: Vec<(ReferenceName, u32)> = known.collect();
        if known.is_empty() {
            return;
        }
        let registry = self.next();
        self.extra.push(Extra::Registry);
        for (name, node) in known {
            self.account_for(node, 1);
            edges.add(registry, node, name);
        }
        self.add_library_root(registry, words.to_owned());
    }

    /// From 3.14 on, `atexit` keeps its functions in a list (Modules/atexitmodule.c), of one tuple for each: the
    /// function, its arguments, and its keyword arguments or `None`.
    fn find_functions_at_exit(&mut self) {
        let Some(number) = functions_at_exit(self.py()).filter(|&number| number > 0) else {
            return;
        };
        let is_call = |call: Bound<'_, PyAny>| {
            let call = call.cast_into_exact::<PyTuple>().ok()?;
            let parts = items(call.as_any());
            let [_, arguments, keywords] = parts.as_slice() else {
                return None;
            };
            let are_keywords = keywords.is_none() || keywords.is_exact_instance_of::<PyDict>();
            (arguments.is_exact_instance_of::<PyTuple>() && are_keywords).then_some(())
        };
        let found = (0..self.objects.len() as u32).find(|&node| {
            self.unaccounted(node) == 1
                && self.objects.object(node).is_some_and(|list| {
                    list.cast_exact::<PyList>().is_ok_and(|list| {
                        list.len() == number && list.iter().all(|call| is_call(call).is_some())
                    })
                })
        });
        if let Some(node) = found {
            self.add_library_root(node, AT_EXIT.to_owned());
        }
    }

    /// The event loop of `asyncio` that runs in this thread.
    fn find_event_loop(&mut self) {
        let running = imported(intern!(self.py(), "_asyncio"))
            .and_then(|module| call(&module, "_get_running_loop", ()));
        if let Some(node) = running.and_then(|it| self.objects.number_of(&it)) {
            self.add_library_root(node, EVENT_LOOP.to_owned());
        }
    }

    /// The loggers, which the program asks for by name. Each leads to all others, so that without this one would be
    /// named after a variable of some library.
    fn find_loggers(&mut self, inspector: &Inspector) {
        let find = || {
            let module = imported(intern!(self.py(), "logging"))?;
            let class = find_item("Logger", |f| dict_items(module.as_any(), f))?;
            let part =
                |name: &str| find_item(name, |f| class_items(&inspector.builtins, &class, f));
            let loggers = attribute(
                &inspector.builtins.instances,
                &part("manager")?,
                "loggerDict",
            )?;
            let mut found = vec![("root".to_owned(), part("root")?)];
            dict_items(&loggers, &mut |name, logger| {
                found.extend(text_of(name).map(|name| (name, logger.clone())));
                true
            });
            Some(found)
        };
        for (name, logger) in find().unwrap_or_default() {
            let has_handlers = attribute(&inspector.builtins.instances, &logger, "handlers");
            if let (Some(node), Some(_)) = (self.objects.number_of(&logger), has_handlers) {
                self.add_library_root(node, format!("logger `{}`", printable(&name)));
            }
        }
    }

    /// The objects in which `weakref.finalize` keeps a function and its arguments.
    fn find_finalizers(&mut self, inspector: &Inspector) {
        let Some(module) = imported(intern!(self.py(), "weakref")) else {
            return;
        };
        let Some(class) = find_item("finalize", |f| dict_items(module.as_any(), f)) else {
            return;
        };
        let Some(registry) =
            find_item("_registry", |f| class_items(&inspector.builtins, &class, f))
        else {
            return;
        };
        let mut found = Vec::new();
        dict_items(&registry, &mut |_, info| {
            if let (Some(node), Some(awaited)) = (self.objects.number_of(info), awaited(info)) {
                found.push((
                    node,
                    format!("{FINALIZER} of {}", inspector.type_name(&awaited)),
                ));
            }
            true
        });
        for (node, words) in found {
            self.add_library_root(node, words);
        }
    }
}

/// The exception of the innermost `except` or `finally` block that this thread is in.
fn handled_exception(py: Python<'_>) -> Option<Bound<'_, PyAny>> {
    let mut parts = [std::ptr::null_mut(); 3];
    let [class, value, traceback] = &mut parts;
    // SAFETY: attached; the call sets each to null or a new reference.
    let [_, value, _] = unsafe {
        ffi::PyErr_GetExcInfo(class, value, traceback);
        parts.map(|part| Bound::from_owned_ptr_or_opt(py, part))
    };
    value
}

impl Inspector {
    /// Which registry in C it may be that holds a function which leads to the targets.
    pub(super) fn guess(&self, live: &Live<'_>, keepers: &Keepers) -> Option<String> {
        let number = functions_at_exit(live.py()).filter(|&number| number > 0)?;
        // The stack of whoever calls a function has it, and that of CPython 3.10 cannot be read.
        let runs = |object: &Bound<'_, PyAny>| {
            let code = function_code(&self.builtins, object);
            code.is_some_and(|code| {
                let mut frames = live.frames.iter();
                frames.any(|frame| frame.code == code.as_ptr() as usize)
            })
        };
        let is_call = |nodes: &&[u32]| {
            let &&[first, next, ..] = nodes else {
                return false;
            };
            let object = live.object(first).filter(|object| !runs(object));
            use ObjectKind::{Function, Method, Partial, Tuple};
            object.is_some_and(|object| match self.kind(&object) {
                Function | Method | Partial => true,
                Tuple => !is_passed(live, first, next),
                _ => false,
            })
        };
        let found = keepers.found.iter().map(|keeper| keeper.nodes.as_slice());
        let from_outside = found.filter(|nodes| live.root(nodes[0]) == Root::Outside);
        let mut held = keepers.fixed.iter().map(Vec::as_slice).chain(from_outside);
        held.any(|nodes| is_call(&nodes)).then(|| {
            let functions = counted(number as u64, "function", "functions");
            format!(
                "C code holds a function or arguments that lead to the object. It may be `atexit`, with which {functions} \
                 are registered: `atexit.unregister()` removes one."
            )
        })
    }
}

/// True for a tuple of arguments that is not `atexit`'s: that is its alone. What a running call was made with
/// (`f(*arguments)`) C holds too, up to 3.11.
fn is_passed(live: &Live<'_>, arguments: u32, item: u32) -> bool {
    let graph = live.graph();
    let in_call = |node: u32| {
        graph
            .sources(node)
            .into_iter()
            .any(|from| live.is_frame(from))
    };
    let mut holders = graph.sources(item).into_iter().take(ASKED);
    !graph.sources(arguments).is_empty() || in_call(item) || holders.any(in_call)
}

/// How many functions `atexit` has; `None` if the program has not imported it.
fn functions_at_exit(py: Python<'_>) -> Option<usize> {
    let module = imported(intern!(py, "atexit"))?;
    let number = call(&module, "_ncallbacks", ())?;
    usize::try_from(int_value(&number)?).ok()
}

/// The result of a function in C of a module, unless the program has put another in its place.
fn call<'py>(
    module: &Bound<'py, PyDict>,
    name: &str,
    arguments: impl pyo3::call::PyCallArgs<'py>,
) -> Option<Bound<'py, PyAny>> {
    let function = find_item(name, |f| dict_items(module.as_any(), f))?;
    let function = function.cast_into_exact::<PyCFunction>().ok()?;
    function.as_any().call1(arguments).ok()
}

/// The handlers that the program has set with `signal.signal()`: C has them in an array.
fn signal_handlers(py: Python<'_>) -> Registered<'_> {
    let Some(module) = imported(intern!(py, "_signal")) else {
        return Vec::new();
    };
    let mut numbers = Vec::new();
    dict_items(module.as_any(), &mut |name, number| {
        let name = text_of(name).unwrap_or_default();
        if name.starts_with("SIG") && !name.starts_with("SIG_") {
            numbers.extend(int_value(number).map(|number| (name, number)));
        }
        true
    });
    numbers.sort_unstable_by(|a, b| (a.1, &a.0).cmp(&(b.1, &b.0)));
    numbers.dedup_by_key(|(_, number)| *number);
    let handlers = numbers.into_iter().filter_map(|(name, number)| {
        let handler = call(&module, "getsignal", (number,))?;
        Some((ReferenceName::Key(format!("signal.{name}")), handler))
    });
    handlers.collect()
}

/// The modes of `torch.overrides` and `torch.utils._python_dispatch` that this thread is in.
fn modes(py: Python<'_>) -> Registered<'_> {
    let Some(module) = imported(intern!(py, "torch._C")) else {
        return Vec::new();
    };
    let stacks = [
        ("_len_torch_function_stack", "_get_function_stack_at"),
        ("_len_torch_dispatch_stack", "_get_dispatch_stack_at"),
    ];
    let of_stack = |(length, at)| {
        let length = call(&module, length, ()).and_then(|length| int_value(&length));
        let modes = (0..length.unwrap_or_default()).map(move |index| (index, at));
        modes.filter_map(|(index, at)| {
            let name = ReferenceName::Index(usize::try_from(index).ok()?);
            Some((name, call(&module, at, (index,))?))
        })
    };
    stacks.into_iter().flat_map(of_stack).collect()
}

/// The innermost hooks of `torch.autograd.graph.saved_tensors_hooks` on this thread.
fn saved_tensor_hooks(py: Python<'_>) -> Registered<'_> {
    let hooks = imported(intern!(py, "torch._C._autograd"))
        .and_then(|module| call(&module, "_top_saved_tensors_default_hooks", (false,)));
    let names = ["pack_hook", "unpack_hook"].map(|name| ReferenceName::Attribute(name.to_owned()));
    let hooks = hooks.iter().flat_map(items);
    names.into_iter().zip(hooks).collect()
}

/// What a finalizer waits for, if it is there still.
pub(super) fn awaited<'py>(info: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    referents(info).into_iter().find_map(|address| {
        // SAFETY: attached; the object refers to it and so keeps it alive.
        let part = unsafe { Bound::from_borrowed_ptr(info.py(), address as *mut ffi::PyObject) };
        part.cast_into_exact::<PyWeakrefReference>().ok()?.upgrade()
    })
}
