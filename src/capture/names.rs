//! What the references of an object are called.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyString, PyTuple};

use super::ReferenceName;
use super::claims::Names;
use super::classes::class_name;
use super::describe::deque_length;
use super::places::qualname;
use super::variables::{name_frame, name_suspended};
use crate::cpython::descriptor::member_place;
use crate::cpython::instances::{attribute, inline_values, instance_dict};
use crate::cpython::read::{TEXT_LIMIT, last_referents, printable, texts_of};
use crate::cpython::{
    Builtins, Descriptor, ENUMERATION, ObjectKind, class_items, dict_items, int_value, items,
    module_dict, repr_of, text_of,
};

/// The names of references `targets` of `object`, in their order.
///
/// `targets` come from a [`crate::capture::Snapshot`], taken before. A reference is named by finding
/// its target again in a part of the object that has a name; what is not found is
/// [`ReferenceName::Unnamed`].
pub fn name_references(
    builtins: &Builtins,
    kind: ObjectKind,
    object: &Bound<'_, PyAny>,
    targets: &[usize],
) -> Vec<ReferenceName> {
    let mut names = Names::new(targets);
    // First, so that no attribute that holds the type as well takes its place.
    names.claim(object.get_type().as_ptr() as usize, || ReferenceName::Type);
    match kind {
        ObjectKind::Dict => name_dict(builtins, object, &mut names),
        ObjectKind::List => name_list(object, &mut names),
        ObjectKind::Tuple => name_tuple(builtins, object, &mut names),
        ObjectKind::Set => name_set(object, &mut names),
        ObjectKind::Deque => name_deque(builtins, object, &mut names),
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
        ObjectKind::Module => names.claim(module_dict(object), || {
            ReferenceName::Attribute("__dict__".to_owned())
        }),
        ObjectKind::BuiltinFunction => {
            names.attribute(&builtins.builtin_self, object, "__self__");
        }
        _ => {}
    }
    if kind == ObjectKind::Instance && !names.done() {
        name_future(builtins, object, &mut names);
    }
    if !names.done() {
        name_members(builtins, object, &mut names);
    }
    if !names.done() {
        name_instance_dict(builtins, object, &mut names);
    }
    // An ordered dictionary refers to each key a second time, for the order.
    if kind == ObjectKind::Dict && !names.done() {
        name_keys(object, &mut names);
    }
    names
        .found
        .into_iter()
        .map(|name| name.unwrap_or(ReferenceName::Unnamed))
        .collect()
}

fn name_dict(builtins: &Builtins, dict: &Bound<'_, PyAny>, names: &mut Names<'_>) {
    dict_items(dict, &mut |key, value| {
        names.claim_value(value, || ReferenceName::Key(literal(builtins, key)));
        !names.done()
    });
    if !names.done() {
        name_keys(dict, names);
    }
}

fn name_keys(dict: &Bound<'_, PyAny>, names: &mut Names<'_>) {
    dict_items(dict, &mut |key, _| {
        names.claim_value(key, || ReferenceName::KeyItself);
        !names.done()
    });
}

/// A dict key as Python source if that is short and certain, else its type.
fn literal(builtins: &Builtins, key: &Bound<'_, PyAny>) -> String {
    literal_within(builtins, key, 2)
}

/// [`literal`], with tuples up to `depth` deep.
fn literal_within(builtins: &Builtins, key: &Bound<'_, PyAny>, depth: usize) -> String {
    const ITEM_LIMIT: usize = 4;
    if key.is_none() {
        return "None".to_owned();
    }
    if key.is_exact_instance_of::<PyString>() {
        return quoted(&text_of(key).unwrap_or_default());
    }
    if let Ok(value) = key.cast_exact::<PyBool>() {
        return if value.is_true() { "True" } else { "False" }.to_owned();
    }
    if let Some(value) = int_value(key) {
        return value.to_string();
    }
    if key.is_exact_instance_of::<PyFloat>()
        && let Some(text) = repr_of(key)
    {
        return text;
    }
    if let Ok(bytes) = key.cast_exact::<PyBytes>()
        && bytes.as_bytes().len() <= TEXT_LIMIT
    {
        let text: String = bytes
            .as_bytes()
            .iter()
            .flat_map(|&byte| byte.escape_ascii())
            .map(char::from)
            .collect();
        return format!("b'{}'", text.replace("\\\"", "\""));
    }
    if key.is_exact_instance_of::<PyTuple>() && depth > 0 {
        let parts = items(key);
        if parts.len() <= ITEM_LIMIT {
            let parts: Vec<String> = parts
                .iter()
                .map(|part| literal_within(builtins, part, depth - 1))
                .collect();
            let comma = if parts.len() == 1 { "," } else { "" };
            return format!("({}{comma})", parts.join(", "));
        }
    }
    // SAFETY: attached, the key and its type are alive.
    if unsafe { builtins.kind(ffi::Py_TYPE(key.as_ptr())) } == ObjectKind::Class {
        return class_name(builtins, key);
    }
    let class = class_name(builtins, key.get_type().as_any());
    match enumeration_member(builtins, key) {
        Some(name) => format!("{class}.{name}"),
        None => format!("<{class}>"),
    }
}

/// The name of a member of an enumeration, which its class gives it (`Lib/enum.py`). Flags together have no such name.
fn enumeration_member(builtins: &Builtins, key: &Bound<'_, PyAny>) -> Option<String> {
    let metaclass = key.get_type().get_type();
    let bases = builtins.type_mro.get(metaclass.as_any())?;
    let is_enumeration = |it| ENUMERATION.contains(&class_name(builtins, &it).as_str());
    if !items(&bases).into_iter().any(is_enumeration) {
        return None;
    }
    let name = text_of(&attribute(&builtins.instances, key, "_name_")?)?;
    let is_identifier = |name: &String| name.chars().all(|it| it.is_alphanumeric() || it == '_');
    Some(printable(&name)).filter(|_| is_identifier(&name))
}

/// A string as Python source.
fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('\'', "\\'");
    format!("'{}'", printable(&text))
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

fn name_set(set: &Bound<'_, PyAny>, names: &mut Names<'_>) {
    // SAFETY: attached; the kind says that this is a set.
    let size = unsafe { ffi::PySet_Size(set.as_ptr()) };
    for element in last_referents(set, usize::try_from(size).unwrap_or(0)) {
        names.claim(element, || ReferenceName::Member);
    }
}

fn name_deque(builtins: &Builtins, deque: &Bound<'_, PyAny>, names: &mut Names<'_>) {
    let items = last_referents(deque, deque_length(builtins, deque));
    for (position, item) in items.into_iter().enumerate() {
        names.claim(item, || ReferenceName::Index(position));
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

/// Names what a future or task of `_asyncio` refers to, whose parts are not members but have
/// getters, which only return them (`FutureObj_get_exception` in Modules/_asynciomodule.c).
fn name_future(builtins: &Builtins, object: &Bound<'_, PyAny>, names: &mut Names<'_>) {
    let Some(mro) = builtins.type_mro.get(object.get_type().as_any()) else {
        return;
    };
    for class in items(&mro) {
        // The name alone first: the module is looked for among all that a class has.
        if !matches!(
            qualname(&builtins.type_qualname, &class).as_str(),
            "Future" | "Task"
        ) || !matches!(
            class_name(builtins, &class).as_str(),
            "_asyncio.Future" | "_asyncio.Task"
        ) {
            continue;
        }
        class_items(builtins, &class, &mut |name, value| {
            let name = text_of(name).unwrap_or_default();
            if matches!(name.as_str(), "_exception" | "_result" | "_coro")
                && value.get_type().as_type_ptr() == &raw mut ffi::PyGetSetDescr_Type
                && let Some(part) = Descriptor::new(value)
            {
                names.attribute(&part, object, &name);
            }
            !names.done()
        });
        // The first callback is in a field of its own (`fut_callback0`); the others have loops, contexts, lists.
        let is_function = |ty: *mut ffi::PyTypeObject| {
            // SAFETY: attached; the type is that of an object that is alive.
            let kind = unsafe { builtins.kind(ty) };
            matches!(
                kind,
                ObjectKind::Function | ObjectKind::Method | ObjectKind::Partial
            )
        };
        if let Some(callback) = names.nameless_of_type(is_function) {
            names.claim(callback, || {
                ReferenceName::Attribute("_callbacks[0]".to_owned())
            });
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
                && let Some(target) = member_of(builtins, value, object)
            {
                names.claim(target, || {
                    ReferenceName::Attribute(printable(&text_of(name).unwrap_or_default()))
                });
            }
            !names.done()
        });
        if names.done() {
            return;
        }
    }
}

/// The address of what a member descriptor reads from an object.
fn member_of(
    builtins: &Builtins,
    descriptor: &Bound<'_, PyAny>,
    object: &Bound<'_, PyAny>,
) -> Option<usize> {
    match builtins.members {
        Some(members) => member_place(members, descriptor)?.read(object),
        None => Some(Descriptor::new(descriptor)?.get(object)?.as_ptr() as usize),
    }
}

/// Names the instance's `__dict__`, and where there is none yet, or the object has the values
/// nevertheless (inline values, from 3.11 on), the attributes themselves.
fn name_instance_dict(builtins: &Builtins, object: &Bound<'_, PyAny>, names: &mut Names<'_>) {
    if let Some(dict) = instance_dict(&builtins.instances, object) {
        names.claim(dict, || ReferenceName::Attribute("__dict__".to_owned()));
    }
    if !names.done() {
        for (name, value) in inline_values(&builtins.instances, object) {
            names.claim(value, || ReferenceName::Attribute(name));
        }
    }
}
