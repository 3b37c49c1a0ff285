//! What to call an object, and where its code is.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::builtins::Builtins;
use super::classes::Classes;
use super::frames::{code_of_frame, variable_names};
use super::read::{
    class_items, dict_items, find_item, first_of_kind, imported, int_value, items, module_named,
    printable, referents, text_of, texts_of,
};
use super::variables::suspended;
use super::{Description, ObjectKind, Place};

/// Describes one object without running its code.
pub fn describe(
    builtins: &Builtins,
    classes: &mut Classes,
    kind: ObjectKind,
    object: &Bound<'_, PyAny>,
) -> Description {
    let class = classes.facts(builtins, object.get_type().as_any());
    let type_name = class.name.clone();
    let mut details = Vec::new();
    let mut place = None;
    let mut free_variables = Vec::new();
    let mut default_arguments = Vec::new();
    let label = match kind {
        ObjectKind::Function => {
            place = function_place(builtins, object);
            if let Some(code) = function_code(builtins, object) {
                let mut names = variable_names(builtins, &code);
                default_arguments = defaulted_parameters(builtins, object, &code, &names);
                // The last variables of a function are those from around it, one for each cell.
                let cells = builtins.function_closure.get(object);
                let cells = cells.map_or(0, |cells| items(&cells).len());
                free_variables = names.split_off(names.len().saturating_sub(cells));
            }
            format!("function {}", qualname(&builtins.function_qualname, object))
        }
        ObjectKind::Method => {
            let function = builtins.method_function.get(object);
            let name = function
                .as_ref()
                .map(|f| qualname(&builtins.function_qualname, f));
            place = function.as_ref().and_then(|f| function_place(builtins, f));
            match name {
                Some(name) if !name.is_empty() => format!("bound method {name}"),
                _ => "bound method".to_owned(),
            }
        }
        ObjectKind::Partial => {
            let function = builtins.partial_function.get(object);
            place = function.as_ref().and_then(|f| callable_place(builtins, f));
            type_name.clone()
        }
        ObjectKind::Frame => {
            let (name, frame_place) = frame_facts(builtins, object);
            place = frame_place;
            format!("frame of {name}")
        }
        ObjectKind::Traceback => {
            let frame = builtins.traceback_frame.get(object);
            place = frame
                .and_then(|frame| frame_facts(builtins, &frame).1)
                .map(|mut place| {
                    let line = builtins
                        .traceback_line
                        .get(object)
                        .and_then(|line| int_value(&line));
                    place.line = line
                        .and_then(|line| u32::try_from(line).ok())
                        .unwrap_or(place.line);
                    place
                });
            "traceback".to_owned()
        }
        ObjectKind::Generator | ObjectKind::Coroutine | ObjectKind::AsyncGenerator => {
            let parts = suspended(builtins, kind);
            place = first_of_kind(builtins, object, ObjectKind::Code)
                .and_then(|code| code_place(builtins, &code));
            let what = match kind {
                ObjectKind::Coroutine => "coroutine",
                ObjectKind::AsyncGenerator => "async generator",
                _ => "generator",
            };
            format!("{what} {}", qualname(&parts.qualname, object))
        }
        ObjectKind::BuiltinFunction => {
            let of_module = builtins
                .builtin_self
                .get(object)
                // SAFETY: attached, the owner and its type are alive.
                .is_none_or(|owner| unsafe {
                    builtins.kind(ffi::Py_TYPE(owner.as_ptr())) == ObjectKind::Module
                });
            let what = if of_module { "function" } else { "method" };
            format!(
                "built-in {what} {}",
                qualname(&builtins.builtin_name, object)
            )
        }
        ObjectKind::Class => {
            let facts = classes.facts(builtins, object);
            place = facts.place.clone();
            format!("class {}", facts.name)
        }
        ObjectKind::Module => {
            let name = builtins
                .module_dict
                .get(object)
                .and_then(|dict| find_item("__name__", |f| dict_items(&dict, f)))
                .and_then(|name| text_of(&name))
                .unwrap_or_default();
            format!("module {}", printable(&name)).trim_end().to_owned()
        }
        _ => {
            place = class.place.clone();
            type_name.clone()
        }
    };
    if let Some(size) = container_size(builtins, kind, object) {
        details.push(("length".to_owned(), size.to_string()));
    }
    let unplaced_class = match kind {
        _ if place.is_some() => None,
        ObjectKind::Class => classes.facts(builtins, object).in_file.clone(),
        _ => class.in_file.clone(),
    };
    details.push((
        "address".to_owned(),
        format!("{:#x}", object.as_ptr() as usize),
    ));
    Description {
        kind,
        type_name,
        label,
        place,
        unplaced_class,
        weakly_referable: class.weakly_referable,
        free_variables,
        default_arguments,
        details,
    }
}

/// True if the objects of a class have room for a list of weak references.
pub(super) fn is_weakly_referable(builtins: &Builtins, class: &Bound<'_, PyAny>) -> bool {
    builtins
        .type_weakrefoffset
        .get(class)
        .and_then(|offset| int_value(&offset))
        .is_some_and(|offset| offset != 0)
}

/// Qualified name of a class with its module, unless that is `builtins` or `__main__`.
pub fn class_name(builtins: &Builtins, class: &Bound<'_, PyAny>) -> String {
    let name = qualname(&builtins.type_qualname, class);
    match class_module(builtins, class).as_deref() {
        None | Some("" | "builtins" | "__main__") => name,
        Some(module) => format!("{}.{name}", printable(module)),
    }
}

/// Qualified name of a class after that of the file that it is written in, as its module tells it.
pub(super) fn class_in_file(builtins: &Builtins, class: &Bound<'_, PyAny>) -> Option<String> {
    let module = class_module(builtins, class)?;
    let file = match module.as_str() {
        "" | "builtins" => return None,
        "__main__" => main_file(class.py())?,
        imported => imported.rsplit('.').next()?.to_owned(),
    };
    let name = qualname(&builtins.type_qualname, class);
    Some(format!("{}.{name}", printable(&file)))
}

/// The name of the script that runs as `__main__`, without folder and ending; `None` if there is none.
fn main_file(py: Python<'_>) -> Option<String> {
    let names = imported(intern!(py, "__main__"))?;
    let file = text_of(&find_item("__file__", |f| dict_items(names.as_any(), f))?)?;
    let name = file.rsplit(['/', '\\']).next()?;
    Some(name.strip_suffix(".py").unwrap_or(name).to_owned())
}

/// The name of the module that a class says it is from.
///
/// That of a class made in Python is looked for by hand: `type.__module__` looks into the class's
/// dictionary, which may hold keys of the program's own types, and so may call their `__eq__`.
fn class_module(builtins: &Builtins, class: &Bound<'_, PyAny>) -> Option<String> {
    // SAFETY: attached, and a class is a live type.
    let flags = unsafe { ffi::PyType_GetFlags(class.as_ptr().cast()) };
    let module = if flags & ffi::Py_TPFLAGS_HEAPTYPE == 0 {
        builtins.type_module.get(class)
    } else {
        find_item("__module__", |f| class_items(builtins, class, f))
    };
    module.and_then(|module| text_of(&module))
}

pub(super) fn qualname(descriptor: &super::Descriptor, object: &Bound<'_, PyAny>) -> String {
    descriptor
        .get(object)
        .and_then(|name| text_of(&name))
        .map(|name| printable(&name))
        .unwrap_or_default()
}

fn function_place(builtins: &Builtins, function: &Bound<'_, PyAny>) -> Option<Place> {
    function_code(builtins, function).and_then(|code| code_place(builtins, &code))
}

/// The code of a function; `None` for anything else.
pub(super) fn function_code<'py>(
    builtins: &Builtins,
    function: &Bound<'py, PyAny>,
) -> Option<Bound<'py, PyAny>> {
    // SAFETY: attached, the object and its type are alive.
    let kind = unsafe { builtins.kind(ffi::Py_TYPE(function.as_ptr())) };
    (kind == ObjectKind::Function)
        .then(|| first_of_kind(builtins, function, ObjectKind::Code))
        .flatten()
}

/// The variables of its module that a function's code names; none for anything else.
pub fn globals_used<'py>(
    builtins: &Builtins,
    function: &Bound<'py, PyAny>,
) -> Vec<Bound<'py, PyAny>> {
    let code = function_code(builtins, function);
    let globals = builtins.function_globals.get(function);
    let both = code.zip(globals);
    both.map_or_else(Vec::new, |(code, globals)| {
        globals_named(builtins, &code, &globals)
    })
}

/// Those of the variables of a module that code names.
pub(super) fn globals_named<'py>(
    builtins: &Builtins,
    code: &Bound<'py, PyAny>,
    globals: &Bound<'py, PyAny>,
) -> Vec<Bound<'py, PyAny>> {
    let names = builtins.code_names.get(code);
    let names = names.map_or_else(Vec::new, |names| texts_of(&names));
    let mut found = Vec::new();
    dict_items(globals, &mut |name, value| {
        if text_of(name).is_some_and(|name| names.contains(&name)) {
            found.push(value.clone());
        }
        true
    });
    found
}

/// True if code, or that of a function within it, passes an argument of some name.
pub(super) fn passes_argument(builtins: &Builtins, code: &Bound<'_, PyAny>, word: &str) -> bool {
    let mut pending = vec![code.clone()];
    while let Some(code) = pending.pop() {
        let constants = builtins.code_consts.get(&code);
        for constant in constants.iter().flat_map(items) {
            if constant.is_exact_instance_of::<PyTuple>() {
                if texts_of(&constant).iter().any(|text| text == word) {
                    return true;
                }
                continue;
            }
            // SAFETY: attached, the object and its type are alive.
            let kind = unsafe { builtins.kind(ffi::Py_TYPE(constant.as_ptr())) };
            if kind == ObjectKind::Code {
                pending.push(constant);
            }
        }
    }
    false
}

/// The names of the positional parameters that have a default: the last ones.
fn defaulted_parameters(
    builtins: &Builtins,
    function: &Bound<'_, PyAny>,
    code: &Bound<'_, PyAny>,
    variables: &[String],
) -> Vec<String> {
    let Some(defaults) = builtins.function_defaults.get(function) else {
        return Vec::new();
    };
    let count = items(&defaults).len();
    let parameters = builtins
        .code_argcount
        .get(code)
        .and_then(|count| int_value(&count));
    let parameters = parameters
        .and_then(|count| usize::try_from(count).ok())
        .unwrap_or(0);
    let parameters = &variables[..parameters.min(variables.len())];
    parameters[parameters.len().saturating_sub(count)..].to_vec()
}

/// The place of a function, or of the function of a bound method.
fn callable_place(builtins: &Builtins, callable: &Bound<'_, PyAny>) -> Option<Place> {
    function_place(builtins, callable).or_else(|| {
        builtins
            .method_function
            .get(callable)
            .and_then(|f| function_place(builtins, &f))
    })
}

pub(super) fn code_place(builtins: &Builtins, code: &Bound<'_, PyAny>) -> Option<Place> {
    let file = builtins
        .code_filename
        .get(code)
        .and_then(|file| text_of(&file))?;
    let line = builtins
        .code_first_line
        .get(code)
        .and_then(|line| int_value(&line));
    Some(Place {
        file: printable(&file),
        line: line.and_then(|line| u32::try_from(line).ok()).unwrap_or(0),
    })
}

/// The function name and current place of a frame.
pub(super) fn frame_facts(
    builtins: &Builtins,
    frame: &Bound<'_, PyAny>,
) -> (String, Option<Place>) {
    let Some(code) = code_of_frame(builtins, frame) else {
        return (String::new(), None);
    };
    let name = qualname(&builtins.code_name, &code);
    let place = code_place(builtins, &code).map(|mut place| {
        let line = builtins
            .frame_line
            .get(frame)
            .and_then(|line| int_value(&line));
        place.line = line
            .and_then(|line| u32::try_from(line).ok())
            .unwrap_or(place.line);
        place
    });
    (name, place)
}

/// Where a class is written: the first line of its first method, which is as near as every version
/// of CPython knows; or where it has none, of its body, if a function makes the class. Methods of
/// another module or under another name do not count: `dataclasses` and `enum` put some of their own
/// into the classes they make.
pub(super) fn class_place(builtins: &Builtins, class: &Bound<'_, PyAny>) -> Option<Place> {
    let module = class_module(builtins, class);
    first_method(builtins, class, module.as_deref(), ObjectKind::Function)
        .or_else(|| first_method(builtins, class, module.as_deref(), ObjectKind::Descriptor))
        .or_else(|| function_of_context(builtins, class))
        .or_else(|| class_body_place(builtins, class, module.as_deref()?))
}

/// The first line of the first method among the functions of a class, or among what its static
/// methods, class methods and properties refer to.
fn first_method(
    builtins: &Builtins,
    class: &Bound<'_, PyAny>,
    module: Option<&str>,
    kind: ObjectKind,
) -> Option<Place> {
    // SAFETY: attached, the object and its type are alive.
    let kind_of = |it: &Bound<'_, PyAny>| unsafe { builtins.kind(ffi::Py_TYPE(it.as_ptr())) };
    let mut first: Option<Place> = None;
    let mut consider = |name: &Bound<'_, PyAny>, function: &Bound<'_, PyAny>| {
        if kind_of(function) == ObjectKind::Function
            && builtins
                .function_module
                .get(function)
                .and_then(|module| text_of(&module))
                .as_deref()
                == module
            && has_name_of_code(builtins, name, function)
            && let Some(place) = function_place(builtins, function)
            && place.line > 0
            && !place.file.starts_with('<')
            && first.as_ref().is_none_or(|first| place.line < first.line)
        {
            first = Some(place);
        }
    };
    class_items(builtins, class, &mut |name, value| {
        if kind_of(value) != kind {
            return true;
        }
        if kind == ObjectKind::Function {
            consider(name, value);
            return true;
        }
        for target in referents(value) {
            // SAFETY: attached; the descriptor refers to the target and so keeps it alive.
            let target =
                unsafe { Bound::from_borrowed_ptr(value.py(), target as *mut ffi::PyObject) };
            consider(name, &target);
        }
        true
    });
    first
}

/// The place of a `torch.autograd.Function`, for the class that `FunctionMeta` made for its contexts
/// (`torch/autograd/function.py`).
fn function_of_context(builtins: &Builtins, class: &Bound<'_, PyAny>) -> Option<Place> {
    let forward = find_item("_forward_cls", |f| class_items(builtins, class, f))?;
    let own = find_item("_forward_cls", |f| class_items(builtins, &forward, f));
    // SAFETY: attached; the check is by type flag.
    let is_class = unsafe { ffi::PyType_Check(forward.as_ptr()) != 0 };
    (is_class && own.is_none()).then(|| class_place(builtins, &forward))?
}

/// The place of the body of a class that is defined in a function, found by the class's qualified name:
/// `make.<locals>.Lookup` is the code `Lookup` among the constants of the function `make`.
fn class_body_place(builtins: &Builtins, class: &Bound<'_, PyAny>, module: &str) -> Option<Place> {
    let qualname = qualname(&builtins.type_qualname, class);
    let mut names = qualname.split('.').filter(|name| *name != "<locals>");
    let globals = builtins
        .module_dict
        .get(&module_named(class.py(), module)?)?;
    let outermost = names.next()?;
    let function = find_item(outermost, |f| dict_items(&globals, f))?;
    let mut code = function_code(builtins, &function)?;
    for name in names {
        let constants = builtins.code_consts.get(&code)?;
        let mut inner = items(&constants).into_iter().filter(|constant| {
            let written = builtins.code_name.get(constant);
            written.and_then(|written| text_of(&written)).as_deref() == Some(name)
        });
        code = match (inner.next(), inner.next()) {
            (Some(only), None) => only,
            _ => return None,
        };
    }
    code_place(builtins, &code)
}

/// True if a function is stored under the name it was written with; a private one's is mangled.
fn has_name_of_code(
    builtins: &Builtins,
    name: &Bound<'_, PyAny>,
    function: &Bound<'_, PyAny>,
) -> bool {
    let written = function_code(builtins, function)
        .and_then(|code| builtins.code_name.get(&code))
        .and_then(|name| text_of(&name));
    match (text_of(name), written) {
        (Some(name), Some(written)) => {
            name == written || (written.starts_with("__") && name.ends_with(&written))
        }
        _ => false,
    }
}

/// How many items a built-in container has, whatever a subclass says.
fn container_size(
    builtins: &Builtins,
    kind: ObjectKind,
    object: &Bound<'_, PyAny>,
) -> Option<usize> {
    // SAFETY: attached; each function reads the size of the kind of container that this is.
    let size = unsafe {
        match kind {
            ObjectKind::Dict => ffi::PyDict_Size(object.as_ptr()),
            ObjectKind::List => ffi::PyList_Size(object.as_ptr()),
            ObjectKind::Tuple => ffi::PyTuple_Size(object.as_ptr()),
            ObjectKind::Set => ffi::PySet_Size(object.as_ptr()),
            ObjectKind::Deque => return Some(deque_length(builtins, object)),
            _ => return None,
        }
    };
    usize::try_from(size).ok()
}

/// How many items a deque has, or an object of a subclass.
pub(super) fn deque_length(builtins: &Builtins, deque: &Bound<'_, PyAny>) -> usize {
    // SAFETY: attached; the function is that of the deque's own type, whatever a subclass says.
    let length = unsafe { (builtins.deque_length)(deque.as_ptr()) };
    usize::try_from(length).unwrap_or(0)
}
