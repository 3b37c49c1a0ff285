//! What the references of an object are called.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use super::builtins::Builtins;
use super::describe::class_name;
use super::read::{class_items, dict_items, int_value, items, text_of, texts_of};
use super::{Descriptor, ObjectKind, ReferenceName};

/// The names of references `targets` of `object`, in their order.
///
/// `targets` come from a [`super::Snapshot`], taken before. A reference is named by finding
/// its target again in a part of the object that has a name; what is not found is
/// [`ReferenceName::Unnamed`].
pub fn name_references(
    builtins: &Builtins,
    kind: ObjectKind,
    object: &Bound<'_, PyAny>,
    targets: &[usize],
) -> Vec<ReferenceName> {
    let mut names = Names {
        targets,
        found: vec![None; targets.len()],
    };
    match kind {
        ObjectKind::Dict => name_dict(builtins, object, &mut names),
        ObjectKind::List => name_list(object, &mut names),
        ObjectKind::Tuple => name_tuple(builtins, object, &mut names),
        ObjectKind::Set => names.claim_rest(|_| ReferenceName::Member),
        ObjectKind::Deque => name_deque(object, &mut names),
        ObjectKind::Function => name_function(builtins, object, &mut names),
        ObjectKind::Cell => names.attribute(&builtins.cell_contents, object, "cell_contents"),
        ObjectKind::Frame => name_frame(builtins, object, &mut names),
        ObjectKind::Generator | ObjectKind::Coroutine | ObjectKind::AsyncGenerator => {
            name_suspended(builtins, kind, object, &mut names);
        }
        ObjectKind::Traceback => {
            names.attribute(&builtins.traceback_next, object, "tb_next");
            names.attribute(&builtins.traceback_frame, object, "tb_frame");
        }
        ObjectKind::Exception => {
            names.attribute(&builtins.exception_traceback, object, "__traceback__");
            names.attribute(&builtins.exception_cause, object, "__cause__");
            names.attribute(&builtins.exception_context, object, "__context__");
            names.attribute(&builtins.exception_args, object, "args");
        }
        ObjectKind::Class => name_class(builtins, object, &mut names),
        ObjectKind::Module => names.claim_dict("__dict__"),
        ObjectKind::BuiltinFunction => {
            names.attribute(&builtins.builtin_self, object, "__self__");
        }
        _ => {}
    }
    if !names.done() {
        name_members(builtins, object, &mut names);
    }
    if !names.done() {
        name_instance_dict(builtins, object, &mut names);
    }
    names.claim(object.get_type().as_ptr() as usize, || ReferenceName::Type);
    names
        .found
        .into_iter()
        .map(|name| name.unwrap_or(ReferenceName::Unnamed))
        .collect()
}

/// The references of one object, named so far or not.
struct Names<'a> {
    targets: &'a [usize],
    found: Vec<Option<ReferenceName>>,
}

impl Names<'_> {
    fn done(&self) -> bool {
        self.found.iter().all(Option::is_some)
    }

    /// True if a reference to `target` has no name yet.
    fn wants(&self, target: usize) -> bool {
        self.targets
            .iter()
            .zip(&self.found)
            .any(|(&t, name)| t == target && name.is_none())
    }

    /// Names the first nameless reference to `target`, if there is one.
    fn claim(&mut self, target: usize, name: impl FnOnce() -> ReferenceName) {
        let free = self
            .targets
            .iter()
            .zip(&self.found)
            .position(|(&t, n)| t == target && n.is_none());
        if let Some(found) = free.and_then(|i| self.found.get_mut(i)) {
            *found = Some(name());
        }
    }

    fn claim_value(&mut self, value: &Bound<'_, PyAny>, name: impl FnOnce() -> ReferenceName) {
        self.claim(value.as_ptr() as usize, name);
    }

    fn claim_rest(&mut self, name: impl Fn(usize) -> ReferenceName) {
        for (i, found) in self.found.iter_mut().enumerate() {
            if found.is_none() {
                *found = Some(name(i));
            }
        }
    }

    fn attribute(&mut self, descriptor: &Descriptor, object: &Bound<'_, PyAny>, name: &str) {
        if self.done() {
            return;
        }
        if let Some(value) = descriptor.get(object) {
            self.claim_value(&value, || ReferenceName::Attribute(name.to_owned()));
        }
    }

    /// Names the first nameless reference to an exact dict.
    fn claim_dict(&mut self, name: &str) {
        if let Some(dict) = self.nameless_dict() {
            self.claim(dict, || ReferenceName::Attribute(name.to_owned()));
        }
    }

    fn nameless_dict(&self) -> Option<usize> {
        self.nameless(|ty| ty == &raw mut ffi::PyDict_Type)
    }

    fn nameless(&self, of_type: impl Fn(*mut ffi::PyTypeObject) -> bool) -> Option<usize> {
        self.targets
            .iter()
            .zip(&self.found)
            .find_map(|(&target, name)| {
                // SAFETY: the targets are alive: the object that is being named refers to them.
                let ty = unsafe { ffi::Py_TYPE(target as *mut ffi::PyObject) };
                (name.is_none() && of_type(ty)).then_some(target)
            })
    }
}

fn name_dict(builtins: &Builtins, dict: &Bound<'_, PyAny>, names: &mut Names<'_>) {
    dict_items(dict, &mut |key, value| {
        names.claim_value(value, || ReferenceName::Key(literal(builtins, key)));
        !names.done()
    });
    if !names.done() {
        dict_items(dict, &mut |key, _| {
            names.claim_value(key, || ReferenceName::KeyItself);
            !names.done()
        });
    }
}

/// A dict key as Python source if that is short and certain, else its type.
fn literal(builtins: &Builtins, key: &Bound<'_, PyAny>) -> String {
    if key.is_exact_instance_of::<pyo3::types::PyString>() {
        return format!("'{}'", text_of(key).unwrap_or_default());
    }
    if let Some(value) = int_value(key) {
        return value.to_string();
    }
    format!("<{}>", class_name(builtins, key.get_type().as_any()))
}

fn name_list(list: &Bound<'_, PyAny>, names: &mut Names<'_>) {
    // SAFETY: attached; the kind says that this is a list, whose items are lent.
    unsafe {
        for i in 0..ffi::PyList_Size(list.as_ptr()) {
            if names.done() {
                break;
            }
            let item = ffi::PyList_GetItem(list.as_ptr(), i);
            names.claim(item as usize, || ReferenceName::Index(i as usize));
        }
    }
}

fn name_tuple(builtins: &Builtins, tuple: &Bound<'_, PyAny>, names: &mut Names<'_>) {
    let fields = named_tuple_fields(builtins, tuple);
    // SAFETY: attached; the kind says that this is a tuple, whose items are lent.
    unsafe {
        for i in 0..ffi::PyTuple_Size(tuple.as_ptr()) {
            if names.done() {
                break;
            }
            let item = ffi::PyTuple_GetItem(tuple.as_ptr(), i);
            names.claim(item as usize, || match fields.get(i as usize) {
                Some(field) => ReferenceName::Attribute(field.clone()),
                None => ReferenceName::Index(i as usize),
            });
        }
    }
}

/// The field names of a named tuple; none for any other tuple.
fn named_tuple_fields(builtins: &Builtins, tuple: &Bound<'_, PyAny>) -> Vec<String> {
    if tuple.is_exact_instance_of::<pyo3::types::PyTuple>() {
        return Vec::new();
    }
    let mut fields = Vec::new();
    class_items(builtins, tuple.get_type().as_any(), &mut |name, value| {
        let found = text_of(name).as_deref() == Some("_fields");
        if found {
            fields = texts_of(value);
        }
        !found
    });
    fields
}

/// A deque traverses its items in order (`deque_traverse` in Modules/_collectionsmodule.c), but its
/// snapshot lacks those that are of no interest, so the items are asked for by position.
fn name_deque(deque: &Bound<'_, PyAny>, names: &mut Names<'_>) {
    // SAFETY: attached; the slots are called on an exact deque, so they are the deque's own, and
    // the item they return is a new reference.
    unsafe {
        let size = ffi::PySequence_Size(deque.as_ptr());
        for i in 0..size {
            if names.done() {
                break;
            }
            let item = ffi::PySequence_GetItem(deque.as_ptr(), i);
            if item.is_null() {
                ffi::PyErr_Clear();
                break;
            }
            names.claim(item as usize, || ReferenceName::Index(i as usize));
            ffi::Py_DecRef(item);
        }
    }
}

fn name_function(builtins: &Builtins, function: &Bound<'_, PyAny>, names: &mut Names<'_>) {
    names.attribute(&builtins.function_closure, function, "__closure__");
    names.attribute(&builtins.function_defaults, function, "__defaults__");
    names.attribute(&builtins.function_kwdefaults, function, "__kwdefaults__");
}

fn name_class(builtins: &Builtins, class: &Bound<'_, PyAny>, names: &mut Names<'_>) {
    names.attribute(&builtins.type_mro, class, "__mro__");
    names.attribute(&builtins.type_bases, class, "__bases__");
    names.attribute(&builtins.type_base, class, "__base__");
    // A class refers to its dictionary itself; `__dict__` shows a proxy made for the occasion.
    names.claim_dict("__dict__");
}

fn name_frame(builtins: &Builtins, frame: &Bound<'_, PyAny>, names: &mut Names<'_>) {
    name_locals(builtins, frame, names);
    // Asking for `f_back` may create the frame object, so only if there is one to be named.
    let frame_type = frame.get_type().as_type_ptr();
    if names.nameless(|ty| ty == frame_type).is_some() {
        names.attribute(&builtins.frame_back, frame, "f_back");
    }
}

fn name_suspended(
    builtins: &Builtins,
    kind: ObjectKind,
    object: &Bound<'_, PyAny>,
    names: &mut Names<'_>,
) {
    let [frame, _, _] = suspended(builtins, kind);
    if let Some(frame) = frame.get(object) {
        names.claim_value(&frame, || ReferenceName::Attribute("frame".to_owned()));
        // From 3.11 on the generator itself refers to the locals; before, its frame does.
        if !names.done() {
            name_locals(builtins, &frame, names);
        }
    }
}

/// The descriptors of a suspended object's frame, code and qualified name.
pub(super) fn suspended(builtins: &Builtins, kind: ObjectKind) -> &[Descriptor; 3] {
    match kind {
        ObjectKind::Coroutine => &builtins.suspended[1],
        ObjectKind::AsyncGenerator => &builtins.suspended[2],
        _ => &builtins.suspended[0],
    }
}

/// Names what a frame's local variables refer to, be it directly or through a cell.
///
/// Up to 3.12 `f_locals` of a function's frame is a dict that the frame keeps, filled on each
/// request (`PyFrame_FastToLocalsWithError`). One that exists already is only read; one that the
/// request made is emptied again, so that the frame holds nothing it did not hold before.
fn name_locals(builtins: &Builtins, frame: &Bound<'_, PyAny>, names: &mut Names<'_>) {
    if let Some(kept) = names.nameless_dict().filter(|_| optimised(builtins, frame)) {
        // SAFETY: the target is alive: the frame refers to it.
        let dict = unsafe { Bound::from_borrowed_ptr(frame.py(), kept as *mut ffi::PyObject) };
        let kept_by_frame = is_kept_snapshot(builtins, frame, &dict);
        if kept_by_frame {
            names.claim(kept, || ReferenceName::Attribute("f_locals".to_owned()));
            let pairs = pairs_of(builtins, &dict);
            claim_locals(builtins, &pairs, names);
            return;
        }
    }
    let Some(locals) = builtins.frame_locals.get(frame) else {
        return;
    };
    let known = names.targets.contains(&(locals.as_ptr() as usize));
    if known {
        names.claim_value(&locals, || ReferenceName::Attribute("f_locals".to_owned()));
    }
    let pairs = pairs_of(builtins, &locals);
    claim_locals(builtins, &pairs, names);
    if !known && optimised(builtins, frame) && locals.is_exact_instance_of::<PyDict>() {
        // SAFETY: attached; the dict was made by the request above, so nobody else has it, and
        // its values are all held by the frame too, so emptying it destroys nothing.
        unsafe { ffi::PyDict_Clear(locals.as_ptr()) };
    }
}

/// True if the frame's code keeps its variables in fast slots, as every function's does
/// (`CO_OPTIMIZED`); a module's or class body's frame uses its dict itself.
fn optimised(builtins: &Builtins, frame: &Bound<'_, PyAny>) -> bool {
    builtins
        .frame_code
        .get(frame)
        .and_then(|code| builtins.code_flags.get(&code))
        .and_then(|flags| int_value(&flags))
        .is_some_and(|flags| flags & 1 != 0)
}

/// True if `dict` looks like the dict that an earlier `f_locals` left in the frame: all its keys are
/// names of the frame's variables. (A local variable that is such a dict gives right names too.)
fn is_kept_snapshot(
    builtins: &Builtins,
    frame: &Bound<'_, PyAny>,
    dict: &Bound<'_, PyAny>,
) -> bool {
    let Some(code) = builtins.frame_code.get(frame) else {
        return false;
    };
    let variables: Vec<String> = [
        &builtins.code_varnames,
        &builtins.code_cellvars,
        &builtins.code_freevars,
    ]
    .into_iter()
    .filter_map(|names| names.get(&code))
    .flat_map(|names| texts_of(&names))
    .collect();
    let mut all = true;
    let mut count = 0;
    dict_items(dict, &mut |key, _| {
        count += 1;
        all = text_of(key).is_some_and(|key| variables.contains(&key));
        all
    });
    all && count > 0
}

/// Names and values of a locals mapping: a dict, or from 3.13 on a `FrameLocalsProxy`.
fn pairs_of<'py>(
    builtins: &Builtins,
    locals: &Bound<'py, PyAny>,
) -> Vec<(String, Bound<'py, PyAny>)> {
    let mut pairs = Vec::new();
    if locals.is_instance_of::<PyDict>() {
        dict_items(locals, &mut |key, value| {
            pairs.push((text_of(key).unwrap_or_default(), value.clone()));
            true
        });
    } else if locals
        .get_type()
        .is(builtins.locals_proxy.bind(locals.py()))
    {
        // SAFETY: attached; the proxy's own `items` is C code and makes a new list.
        let list = unsafe {
            let list = ffi::PyMapping_Items(locals.as_ptr());
            Bound::from_owned_ptr_or_opt(locals.py(), list)
        };
        let Some(list) = list else {
            // SAFETY: attached.
            unsafe { ffi::PyErr_Clear() };
            return pairs;
        };
        for pair in list
            .cast::<PyList>()
            .into_iter()
            .flat_map(|list| list.iter())
        {
            if let [key, value] = items(&pair).as_slice() {
                pairs.push((text_of(key).unwrap_or_default(), value.clone()));
            }
        }
    }
    pairs
}

fn claim_locals(builtins: &Builtins, pairs: &[(String, Bound<'_, PyAny>)], names: &mut Names<'_>) {
    for (name, value) in pairs {
        if names.wants(value.as_ptr() as usize) {
            names.claim_value(value, || ReferenceName::Local(name.clone()));
        }
    }
    let Some((_, any)) = pairs.first() else {
        return;
    };
    let py = any.py();
    // A variable that an inner function uses too lives in a cell, and the frame refers to that.
    for i in 0..names.targets.len() {
        if names.found[i].is_some() {
            continue;
        }
        // SAFETY: the targets are alive: the object that is being named refers to them.
        let cell = unsafe { Bound::from_borrowed_ptr(py, names.targets[i] as *mut ffi::PyObject) };
        // SAFETY: as above.
        if unsafe { builtins.kind(ffi::Py_TYPE(cell.as_ptr())) } != ObjectKind::Cell {
            continue;
        }
        if let Some(value) = builtins.cell_contents.get(&cell)
            && let Some((name, _)) = pairs.iter().find(|(_, v)| v.is(&value))
        {
            names.found[i] = Some(ReferenceName::Local(name.clone()));
        }
    }
}

/// Names what slots and other members implemented in C refer to: `__slots__`, `partial.func`,
/// `method.__self__`, `property.fget`.
///
/// Reading a member is a C field access (`PyMember_GetOne`), whatever the type.
fn name_members(builtins: &Builtins, object: &Bound<'_, PyAny>, names: &mut Names<'_>) {
    let Some(mro) = builtins.type_mro.get(object.get_type().as_any()) else {
        return;
    };
    for class in items(&mro) {
        class_items(builtins, &class, &mut |name, value| {
            if value
                .get_type()
                .is(builtins.member_descriptor.bind(object.py()))
                && let Some(member) = Descriptor::new(value)
            {
                names.attribute(&member, object, &text_of(name).unwrap_or_default());
            }
            !names.done()
        });
        if names.done() {
            return;
        }
    }
}

/// Names attributes in the instance's `__dict__`, or where that does not exist as a dict yet
/// (inline values, from 3.11 on) the attributes themselves.
fn name_instance_dict(builtins: &Builtins, object: &Bound<'_, PyAny>, names: &mut Names<'_>) {
    let offset = builtins
        .type_dictoffset
        .get(object.get_type().as_any())
        .and_then(|offset| int_value(&offset))
        .unwrap_or(0);
    // A negative offset stands for a dict that the interpreter manages and may not have made yet.
    if offset == 0 || (offset > 0 && names.nameless_dict().is_none()) {
        return;
    }
    // SAFETY: attached; reads or makes the object's own dict without asking its class
    // (Objects/object.c); the references were taken before.
    let dict = unsafe {
        let dict = ffi::PyObject_GenericGetDict(object.as_ptr(), std::ptr::null_mut());
        match Bound::from_owned_ptr_or_opt(object.py(), dict) {
            Some(dict) => dict,
            None => {
                ffi::PyErr_Clear();
                return;
            }
        }
    };
    if names.wants(dict.as_ptr() as usize) {
        names.claim_value(&dict, || ReferenceName::Attribute("__dict__".to_owned()));
        return;
    }
    dict_items(&dict, &mut |key, value| {
        if names.wants(value.as_ptr() as usize) {
            let name = text_of(key).unwrap_or_default();
            names.claim_value(value, || ReferenceName::Attribute(name));
        }
        !names.done()
    });
}
