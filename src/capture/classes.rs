//! What is known of each class, remembered for the time of a look.

use std::rc::Rc;
use std::sync::OnceLock;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyType};
use rustc_hash::FxHashMap;

use super::places::{code_place, function_code, function_place, qualname};
use super::{ClassSource, Place, WeakReferences, is_library_file};
use crate::cpython::attributes::{class_items, first_of_kind};
use crate::cpython::frames::variable_names;
use crate::cpython::read::{
    dict_items, find_item, imported, int_value, items, module_named, printable, referents, text_of,
};
use crate::cpython::types::{binding, is_heap_class};
use crate::cpython::{Binding, Builtins, Descriptor, ObjectKind};

/// How to present a class to a person.
#[derive(Debug)]
pub struct ClassFacts {
    /// Qualified name with the module, unless that is `builtins` or `__main__`.
    pub name: String,
    /// Where it is written, if it is written in Python.
    pub place: Option<Place>,
    /// As [`ClassSource::file`].
    pub file: Option<String>,
    /// As [`Description::unplaced_class`](crate::capture::Description::unplaced_class).
    pub in_file: Option<String>,
    /// As [`Description::of_library`](crate::capture::Description::of_library), of its instances.
    pub of_library: bool,
    /// As [`Description::weak_references`](crate::capture::Description::weak_references).
    pub weak_references: WeakReferences,
    /// As [`Description::frozen`](crate::capture::Description::frozen), of its instances.
    pub frozen: bool,
    /// As [`Description::own_setattr`](crate::capture::Description::own_setattr), of its instances.
    pub own_setattr: bool,
    /// As [`Description::has_forward`](crate::capture::Description::has_forward), of its instances.
    pub has_forward: bool,
}

/// The facts of the classes met lately.
///
/// A class made at run time can die and another be born at its address, and no weak reference tells of it, as the
/// program would see that. Classes die in collections, being cycles: whoever keeps this over a collection
/// [forgets](Classes::forget) all, unless it has seen that there was no class in its garbage.
#[derive(Default)]
pub struct Classes {
    by_address: FxHashMap<usize, Rc<ClassFacts>>,
}

/// So many classes are remembered; then it starts afresh.
const LIMIT: usize = 1024;

impl Classes {
    /// The facts of a class, read without running its code.
    pub fn facts(&mut self, builtins: &Builtins, class: &Bound<'_, PyAny>) -> Rc<ClassFacts> {
        let address = class.as_ptr() as usize;
        if let Some(known) = self.by_address.get(&address) {
            return Rc::clone(known);
        }
        let mortal = is_heap_class(class);
        // What is part of the interpreter or of a library has no function written in Python.
        let place = mortal.then(|| class_place(builtins, class)).flatten();
        let module_file = || {
            let module = module_named(class.py(), &class_module(builtins, class)?)?;
            let file = file_in(&builtins.module_dict.get(&module)?)?;
            Some(printable(&file))
        };
        let facts = Rc::new(ClassFacts {
            name: class_name(builtins, class),
            file: match &place {
                Some(place) => Some(place.file.clone()),
                None => mortal.then(module_file).flatten(),
            },
            of_library: mortal && place.is_none() && is_librarys(builtins, class),
            place,
            in_file: class_in_file(builtins, class),
            weak_references: weak_references(builtins, class),
            frozen: is_frozen(builtins, class),
            own_setattr: mortal && has_own_setattr(builtins, class),
            has_forward: mortal && has_forward(builtins, class),
        });
        if self.by_address.len() >= LIMIT {
            self.by_address.clear();
        }
        self.by_address.insert(address, Rc::clone(&facts));
        facts
    }

    /// Where a class and those that it derives from are written, in the order of the `__mro__`, but for those of C.
    pub fn sources(&mut self, builtins: &Builtins, class: &Bound<'_, PyAny>) -> Vec<ClassSource> {
        let mro = builtins.type_mro.get(class);
        let bases = mro.as_ref().map_or_else(Vec::new, items).into_iter();
        let mortal = bases.filter(is_heap_class);
        let source = |base: Bound<'_, PyAny>| {
            let facts = self.facts(builtins, &base);
            ClassSource {
                name: qualname(&builtins.type_qualname, &base),
                file: facts.file.clone(),
                line: facts.place.as_ref().map(|place| place.line),
            }
        };
        mortal.map(source).collect()
    }

    /// True if a class, and all that it derives from but those of C, are in files of the program: what a library makes at run
    /// time may say that it is from a module of the program, as the classes of `unittest.mock` do.
    pub fn are_of_program(&mut self, builtins: &Builtins, class: &Bound<'_, PyAny>) -> bool {
        let sources = self.sources(builtins, class);
        let is_programs = |it: &ClassSource| {
            it.file
                .as_deref()
                .is_some_and(|file| !is_library_file(file))
        };
        !sources.is_empty() && sources.iter().all(is_programs)
    }

    /// Forgets all classes.
    pub fn forget(&mut self) {
        self.by_address.clear();
    }
}

/// Qualified name of a class with its module, unless that is `builtins` or the program's main module, which spawned
/// processes have as `__mp_main__` (Lib/multiprocessing/spawn.py, `_fixup_main_from_path`).
pub fn class_name(builtins: &Builtins, class: &Bound<'_, PyAny>) -> String {
    let name = qualname(&builtins.type_qualname, class);
    match class_module(builtins, class).as_deref() {
        None | Some("" | "builtins" | "__main__" | "__mp_main__") => name,
        Some(module) => format!("{}.{name}", printable(module)),
    }
}

/// Qualified name of a class after that of the file that it is written in, as its module tells it.
fn class_in_file(builtins: &Builtins, class: &Bound<'_, PyAny>) -> Option<String> {
    let module = class_module(builtins, class)?;
    let file = match module.as_str() {
        "" | "builtins" => return None,
        "__main__" | "__mp_main__" => main_file(class.py())?,
        imported => imported.rsplit('.').next()?.to_owned(),
    };
    let name = qualname(&builtins.type_qualname, class);
    Some(format!("{}.{name}", printable(&file)))
}

/// True for a class that a library's module in Python has under the name of the class: what a library makes for the
/// program says that it is from such a module as well. False for one of C, which has methods of C.
fn is_librarys(builtins: &Builtins, class: &Bound<'_, PyAny>) -> bool {
    let globals = || {
        let module = module_named(class.py(), &class_module(builtins, class)?)?;
        builtins.module_dict.get(&module)
    };
    let Some(globals) = globals() else {
        return false;
    };
    let name = qualname(&builtins.type_qualname, class);
    let is_written =
        file_in(&globals).is_some_and(|file| file.ends_with(".py") && is_library_file(&file));
    let is_there = || find_item(&name, |f| dict_items(&globals, f)).is_some_and(|it| it.is(class));
    let mut is_of_c = false;
    class_items(builtins, class, &mut |_, value| {
        let kind = qualname(&builtins.type_qualname, value.get_type().as_any());
        is_of_c |= matches!(&*kind, "wrapper_descriptor" | "method_descriptor");
        !is_of_c
    });
    is_written && !is_of_c && is_there()
}

/// The name of the script that runs as `__main__`, without folder and ending; `None` if there is none.
fn main_file(py: Python<'_>) -> Option<String> {
    let file = file_in(imported(intern!(py, "__main__"))?.as_any())?;
    let name = file.rsplit(['/', '\\']).next()?;
    Some(name.strip_suffix(".py").unwrap_or(name).to_owned())
}

/// The name of the module that a class says it is from.
///
/// That of a class made in Python is looked for by hand: `type.__module__` looks into the class's
/// dictionary, which may hold keys of the program's own types, and so may call their `__eq__`.
///
/// `None` for what is no class.
pub(super) fn class_module(builtins: &Builtins, class: &Bound<'_, PyAny>) -> Option<String> {
    let ty = class.cast::<PyType>().ok()?.as_type_ptr();
    // SAFETY: attached, and this is a live type.
    let flags = unsafe { ffi::PyType_GetFlags(ty) };
    let module = if flags & ffi::Py_TPFLAGS_HEAPTYPE == 0 {
        builtins.type_module.get(class)
    } else {
        find_item("__module__", |f| class_items(builtins, class, f))
    };
    module.and_then(|module| text_of(&module))
}

/// Whether the objects of a class have room for a list of weak references, or could have. Those of varying size, such as
/// an `int`, could not (`type_new_slots_impl` in Objects/typeobject.c).
fn weak_references(builtins: &Builtins, class: &Bound<'_, PyAny>) -> WeakReferences {
    let number = |field: &Descriptor| field.get(class).and_then(|value| int_value(&value));
    if number(&builtins.type_weakrefoffset).is_some_and(|offset| offset != 0) {
        return WeakReferences::Taken;
    }
    match number(&builtins.type_itemsize) {
        Some(0) => WeakReferences::WithSlot,
        _ => WeakReferences::Never,
    }
}

/// True for an instance of a frozen data class, whose attributes cannot be assigned or deleted.
pub fn has_frozen_class(builtins: &Builtins, object: &Bound<'_, PyAny>) -> bool {
    is_frozen(builtins, object.get_type().as_any())
}

fn is_frozen(builtins: &Builtins, class: &Bound<'_, PyAny>) -> bool {
    is_heap_class(class)
        && (is_frozen_data_class(builtins, class) || is_frozen_model(builtins, class))
}

/// True if the `__setattr__` of a class is that of a frozen data class: it raises `FrozenInstanceError`
/// (`_frozen_get_del_attr` in Lib/dataclasses.py, `_frozen_setattrs` of attrs).
fn is_frozen_data_class(builtins: &Builtins, class: &Bound<'_, PyAny>) -> bool {
    let Some(code) = setattr_code(builtins, class) else {
        return false;
    };
    let names = builtins.code_names.get(&code);
    let names = names.as_ref().map_or_else(Vec::new, items);
    let names = names.iter().filter_map(text_of);
    names
        .chain(variable_names(builtins, &code))
        .any(|name| name == "FrozenInstanceError")
}

/// The code of the `__setattr__` that a class has or inherits, if it is written in Python.
fn setattr_code<'py>(builtins: &Builtins, class: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    let mro = builtins.type_mro.get(class);
    let mut bases = mro.as_ref().map_or_else(Vec::new, items).into_iter();
    let setter =
        bases.find_map(|base| find_item("__setattr__", |f| class_items(builtins, &base, f)));
    function_code(builtins, &setter?)
}

/// What a class has or inherits under a name; not the `forward` that `torch.nn.Module` has for modules without one, which
/// raises `NotImplementedError` (`_forward_unimplemented` in torch/nn/modules/module.py).
pub(super) fn class_attribute<'py>(
    builtins: &Builtins,
    class: &Bound<'py, PyAny>,
    name: &str,
) -> Option<Bound<'py, PyAny>> {
    let mro = builtins.type_mro.get(class);
    let mut bases = mro.as_ref().map_or_else(Vec::new, items).into_iter();
    let found = bases.find_map(|base| find_item(name, |f| class_items(builtins, &base, f)))?;
    let code = function_code(builtins, &found);
    let is_missing =
        code.is_some_and(|it| qualname(&builtins.code_name, &it) == "_forward_unimplemented");
    (!is_missing).then_some(found)
}

/// What the class of an object does with an attribute that the object itself has.
pub fn binding_of_class(
    builtins: &Builtins,
    object: &Bound<'_, PyAny>,
    attribute: &str,
) -> Binding {
    let found = class_attribute(builtins, object.get_type().as_any(), attribute);
    found.map_or(Binding::Value, |found| binding(&found))
}

fn has_forward(builtins: &Builtins, class: &Bound<'_, PyAny>) -> bool {
    let forward = class_attribute(builtins, class, "forward");
    forward.is_some_and(|it| function_code(builtins, &it).is_some())
}

/// True if that is the program's, and does not seem to store just any attribute: it names an exception, or nothing that
/// stores one.
fn has_own_setattr(builtins: &Builtins, class: &Bound<'_, PyAny>) -> bool {
    let Some(code) = setattr_code(builtins, class) else {
        return false;
    };
    let file = builtins.code_filename.get(&code);
    let file = file.and_then(|file| text_of(&file)).unwrap_or_default();
    let names = builtins.code_names.get(&code);
    let names = names.as_ref().map_or_else(Vec::new, items);
    let names: Vec<String> = names.iter().filter_map(text_of).collect();
    let stores = |name: &String| matches!(name.as_str(), "__setattr__" | "__dict__" | "vars");
    let refuses = names.iter().any(|name| name.ends_with("Error"));
    !is_library_file(&file) && !file.starts_with('<') && (refuses || !names.iter().any(stores))
}

/// True for a model of Pydantic that is configured so (`ModelMetaclass.__new__` in
/// pydantic/_internal/_model_construction.py gives each model the whole configuration).
fn is_frozen_model(builtins: &Builtins, class: &Bound<'_, PyAny>) -> bool {
    let own = |name| find_item(name, |f| class_items(builtins, class, f));
    let config = own("__pydantic_fields__").and(own("model_config"));
    let config = config.filter(|config| config.is_exact_instance_of::<PyDict>());
    let frozen = config.and_then(|config| find_item("frozen", |f| dict_items(&config, f)));
    frozen.is_some_and(|frozen| frozen.is(&*PyBool::new(frozen.py(), true)))
}

/// Where a class is written: the first line of its first method, which is as near as every version
/// of CPython knows; or where it has none, of its body, if a function makes the class. Methods of
/// another module or under another name do not count: `dataclasses` and `enum` put some of their own
/// into the classes they make.
fn class_place(builtins: &Builtins, class: &Bound<'_, PyAny>) -> Option<Place> {
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
            && (!place.file.starts_with('<') || is_library_file(&place.file))
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
/// `make.<locals>.Lookup` is the code `Lookup` among the constants of the function `make`, which may be a method.
fn class_body_place(builtins: &Builtins, class: &Bound<'_, PyAny>, module: &str) -> Option<Place> {
    let qualname = qualname(&builtins.type_qualname, class);
    let mut names = qualname.split('.').filter(|name| *name != "<locals>");
    let globals = builtins
        .module_dict
        .get(&module_named(class.py(), module)?)?;
    let outermost = names.next()?;
    let mut function = find_item(outermost, |f| dict_items(&globals, f))?;
    // SAFETY: attached; the check is by type flag.
    while unsafe { ffi::PyType_Check(function.as_ptr()) } != 0 {
        let name = names.next()?;
        function = find_item(name, |f| class_items(builtins, &function, f))?;
    }
    // SAFETY: attached, the object and its type are alive.
    let kind_of = |it: &Bound<'_, PyAny>| unsafe { builtins.kind(ffi::Py_TYPE(it.as_ptr())) };
    if kind_of(&function) == ObjectKind::Descriptor {
        function = first_of_kind(builtins, &function, ObjectKind::Function)?;
    }
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

/// The file of a module, given its names.
///
/// CPython takes the script's name out of `__main__` when the script ends (`_PyRun_SimpleFile` in Python/pythonrun.c),
/// before exit handlers run: then it is what it was at first.
pub fn file_in(names: &Bound<'_, PyAny>) -> Option<String> {
    let file = find_item("__file__", |f| dict_items(names, f));
    let file = file.and_then(|file| text_of(&file));
    file.or_else(|| {
        let (script, file) = SCRIPT.get()?;
        let main = imported(intern!(names.py(), "__main__"))?;
        (main.is(names) && *script == main.as_ptr() as usize).then(|| file.clone())
    })
}

/// The names of `__main__`, by their address, and its file.
static SCRIPT: OnceLock<(usize, String)> = OnceLock::new();

/// Remembers the file of the script. A notebook has none, but may run scripts under this name.
pub fn remember_script(py: Python<'_>) {
    let Some(main) = imported(intern!(py, "__main__")) else {
        return;
    };
    let has = |name| find_item(name, |f| dict_items(main.as_any(), f));
    let file = has("__file__").and_then(|file| text_of(&file));
    if let Some(file) = file.filter(|_| has("get_ipython").is_none()) {
        SCRIPT.get_or_init(|| (main.as_ptr() as usize, file));
    }
}
