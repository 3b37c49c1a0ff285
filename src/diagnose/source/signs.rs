//! Words by which a program may copy an object, pickle it, or read all its attributes.

use tree_sitter::Node;

use super::change::{Place, Subject};
use super::held::{in_import, is_imported, last_part};
use super::syntax::{Syntax, all, children, functions_around, is_field, lines, scope, statement};

/// Names by which a program may reach an attribute without naming it.
const READING: [&str; 6] = [
    "dir",
    "__dict__",
    "vars",
    "getmembers",
    "getmembers_static",
    "get_referrers",
];
/// Functions that run any code.
const RUNNING: [&str; 2] = ["eval", "exec"];
/// Methods that give all attributes away.
const STATES: [&str; 3] = ["__getstate__", "__reduce__", "__reduce_ex__"];
/// Methods by which a class does more than have attributes.
const HOOKS: [&str; 3] = ["__getattr__", "__getattribute__", "__setattr__"];
/// Functions that copy or replace what a dataclass has.
const OF_FIELDS: [&str; 5] = ["astuple", "asdict", "fields", "replace", "evolve"];
/// What copies an object with all that it has.
const COPYING: [&str; 13] = [
    "deepcopy",
    "quantize_dynamic",
    "AveragedModel",
    "StochasticWeightAveraging",
    "swa_utils",
    "_get_clones",
    "TransformerEncoder",
    "TransformerDecoder",
    "ModelEma",
    "ModelEmaV2",
    "ModelEmaV3",
    "ModelEMA",
    "model_copy",
];
/// What pickles functions too.
const PICKLING_ALL: [&str; 8] = [
    "cloudpickle",
    "dill",
    "joblib",
    "ray",
    "pathos",
    "loky",
    "submitit",
    "pyspark",
];
/// What pickles an object, or sends it to another process.
const PICKLING: [&str; 19] = [
    "pickle",
    "cPickle",
    "multiprocessing",
    "ProcessPoolExecutor",
    "shelve",
    "copyreg",
    "spawn",
    "all_gather_object",
    "gather_object",
    "broadcast_object_list",
    "scatter_object_list",
    "send_object_list",
    "rpc_sync",
    "rpc_async",
    "__reduce__",
    "__reduce_ex__",
    "__getstate__",
    "__setstate__",
    "__getnewargs__",
];
/// What the module `pickle` has that writes nothing.
const UNPICKLING: [&str; 5] = [
    "load",
    "loads",
    "Unpickler",
    "UnpicklingError",
    "HIGHEST_PROTOCOL",
];
/// What the module `multiprocessing` has that sends no object.
const COUNTING: [&str; 5] = [
    "cpu_count",
    "current_process",
    "parent_process",
    "active_children",
    "get_start_method",
];
/// What notices when an object is freed.
const WEAK: [&str; 11] = [
    "WeakValueDictionary",
    "WeakKeyDictionary",
    "WeakIdKeyDictionary",
    "WeakTensorKeyDictionary",
    "WeakSet",
    "WeakMethod",
    "ReferenceType",
    "KeyedRef",
    "getrefcount",
    "get_objects",
    "get_referents",
];
/// By which code may see how many calls it is away from its caller.
const OF_FRAMES: [&str; 11] = [
    "_current_frames",
    "walk_stack",
    "print_stack",
    "setprofile",
    "settrace",
    "_getframe",
    "currentframe",
    "f_back",
    "extract_stack",
    "format_stack",
    "stacklevel",
];
/// Functions that show the variables of the function that calls them without an argument.
const OF_LOCALS: [&str; 3] = ["locals", "vars", "dir"];

/// Words of a file that make it worth parsing, besides the names of what is looked for.
pub fn words() -> impl Iterator<Item = &'static str> {
    let others = [
        "copy",
        "getattr",
        "attrgetter",
        "setattr",
        "delattr",
        "save",
        "num_workers",
        "ref",
        "proxy",
    ];
    let lists: [&[&str]; 12] = [
        &READING,
        &RUNNING,
        &STATES,
        &HOOKS,
        &OF_FIELDS,
        &COPYING,
        &PICKLING_ALL,
        &PICKLING,
        &WEAK,
        &OF_FRAMES,
        &["stack", "warn", "_weakref"],
        &["__del__", "finalize"],
    ];
    lists.into_iter().flatten().copied().chain(others)
}

/// Why a node is a sign that the program does more with an object than call its methods.
pub fn sign(syntax: &Syntax, node: Node<'_>, subject: &Subject, place: Place) -> Option<String> {
    if node.kind() != "identifier" {
        return None;
    }
    let (word, line) = (syntax.of(node), lines(node).0);
    let says = |what: &str| Some(format!("line {line} uses `{word}`, which may {what}"));
    if reads_all(syntax, node, word, place) {
        return says("reach the attribute");
    }
    if is_of_fields(syntax, node, word, subject) || copies(syntax, node, word) {
        return says("copy the object with what it has");
    }
    if pickles(syntax, node, word, subject) {
        return says("write the object to a file or another process");
    }
    if notices_end(syntax, node, word) || refers_weakly(syntax, node, word) {
        return says("notice when the object is freed");
    }
    if subject.method.is_some() && sees_frames(syntax, node, word) {
        return says("see that the call takes one function more");
    }
    finalizes(syntax, node, word, place)
        .then(|| format!("a finalizer in line {line} would run earlier"))
}

fn reads_all(syntax: &Syntax, node: Node<'_>, word: &str, place: Place) -> bool {
    let parent = node.parent();
    if HOOKS.contains(&word) {
        let defines = parent.is_some_and(|parent| is_field(parent, "name", node));
        return place == Place::Own || defines && word != "__getattr__";
    }
    let is_part = parent.is_some_and(|it| is_field(it, "attribute", node));
    if RUNNING.contains(&word) {
        return !is_part && parent.is_some_and(|it| is_field(it, "function", node));
    }
    if STATES.contains(&word) {
        return is_part;
    }
    // `g = getattr` and `map(getattr, …)`: which name it gets is not known.
    if word == "getattr" && !is_part && !in_import(node) {
        return parent.is_none_or(|it| !is_field(it, "function", node));
    }
    if !READING.contains(&word) {
        return false;
    }
    if in_import(node) {
        return is_renamed(node);
    }
    let Some(parent) = parent else { return true };
    match (word, parent.kind()) {
        ("vars" | "dir", "call") => {
            let arguments = parent.child_by_field_name("arguments").map(children);
            let argument = arguments.and_then(|list| list.first().copied());
            argument.is_some_and(|argument| !is_no_object(syntax, argument))
        }
        ("__dict__", "attribute") => {
            let object = parent.child_by_field_name("object");
            object.is_none_or(|object| !is_no_object(syntax, object))
        }
        // A variable may have this name.
        ("dir", _) => false,
        _ => true,
    }
}

/// True for a module, and for what a parser of arguments has returned.
pub fn is_no_object(syntax: &Syntax, value: Node<'_>) -> bool {
    match value.kind() {
        "attribute" => value
            .child_by_field_name("object")
            .is_some_and(|object| is_no_object(syntax, object)),
        "identifier" => {
            let name = syntax.of(value);
            is_module(syntax, name) || is_parsed(syntax, name)
        }
        "call" => {
            let function = value.child_by_field_name("function");
            let name = function.map_or("", |function| last_part(syntax.of(function)));
            matches!(name, "import_module" | "parse_args")
        }
        _ => false,
    }
}

/// True for a name that only `import …` binds, or `from torch import …`.
fn is_module(syntax: &Syntax, name: &str) -> bool {
    let is_of_module = |node: &Node<'_>| {
        let statement = statement(*node);
        let module = statement.child_by_field_name("module_name");
        let root = module.map(|module| syntax.of(module).split('.').next().unwrap_or_default());
        matches!(root, None | Some("torch" | "torchvision" | "torchaudio"))
    };
    is_imported(syntax, name)
        && syntax
            .bindings(syntax.root(), name)
            .iter()
            .all(is_of_module)
}

/// True for a variable that only `….parse_args(…)` gives its value.
fn is_parsed(syntax: &Syntax, name: &str) -> bool {
    let bindings = syntax.bindings(syntax.root(), name);
    let parses = |node: &Node<'_>| {
        let assignment = node.parent().filter(|parent| parent.kind() == "assignment");
        let value = assignment.and_then(|assignment| assignment.child_by_field_name("right"));
        value.is_some_and(|value| value.kind() == "call" && is_no_object(syntax, value))
    };
    !bindings.is_empty() && bindings.iter().all(parses)
}

/// True for a function of the module `dataclasses` or `attrs` that copies fields.
fn is_of_fields(syntax: &Syntax, node: Node<'_>, word: &str, subject: &Subject) -> bool {
    let may_have_fields = subject.is_decorated || subject.has_bases();
    if !may_have_fields || !OF_FIELDS.contains(&word) {
        return false;
    }
    matches!(word, "astuple" | "asdict" | "evolve")
        || is_from(syntax, node, &["dataclasses", "attr", "attrs", "copy"])
}

/// True for `module.name` of one of some modules, and for the name in `from module import name`.
fn is_from(syntax: &Syntax, node: Node<'_>, modules: &[&str]) -> bool {
    if in_import(node) {
        let module = statement(node).child_by_field_name("module_name");
        return module.is_some_and(|module| modules.contains(&syntax.of(module)));
    }
    let parent = node
        .parent()
        .filter(|parent| is_field(*parent, "attribute", node));
    let object = parent.and_then(|parent| parent.child_by_field_name("object"));
    object.is_some_and(|object| {
        modules
            .iter()
            .any(|module| is_module_named(syntax, object, module))
    })
}

/// True for a variable to which `import` binds a module.
fn is_module_named(syntax: &Syntax, variable: Node<'_>, module: &str) -> bool {
    let bindings = syntax.bindings(syntax.root(), syntax.of(variable));
    bindings.iter().any(|&node| {
        let parent = node.parent().filter(|_| in_import(node));
        let name = parent.and_then(|parent| match parent.kind() {
            "aliased_import" => parent.child_by_field_name("name"),
            _ => Some(parent),
        });
        name.is_some_and(|name| syntax.of(name) == module)
    })
}

fn copies(syntax: &Syntax, node: Node<'_>, word: &str) -> bool {
    if word == "copy" {
        return copies_by_module(syntax, node);
    }
    if !COPYING.contains(&word) {
        return false;
    }
    if in_import(node) {
        return is_renamed(node);
    }
    let argument = argument_of(node);
    !argument.is_some_and(|argument| {
        is_own_data(syntax, argument)
            || word.starts_with("Transformer") && is_layer(syntax, argument)
    })
}

/// `copy` as the module or its function; the method of an object is found by what it does.
fn copies_by_module(syntax: &Syntax, node: Node<'_>) -> bool {
    if in_import(node) {
        let imported = all(statement(node));
        let is_all = is_from(syntax, node, &["copy"])
            && imported.iter().any(|it| it.kind() == "wildcard_import");
        return is_renamed(node) || is_all;
    }
    if !syntax.is_variable(node) {
        return is_from(syntax, node, &["copy"]) && !is_own_data_of(syntax, node);
    }
    // What is taken from the module is found by its own name.
    let is_object = node
        .parent()
        .is_some_and(|parent| is_field(parent, "object", node));
    !is_object && is_imported(syntax, "copy") && !is_own_data_of(syntax, node)
}

fn is_own_data_of(syntax: &Syntax, function: Node<'_>) -> bool {
    argument_of(function).is_some_and(|argument| is_own_data(syntax, argument))
}

/// `import copy as c`.
fn is_renamed(node: Node<'_>) -> bool {
    let mut at = node.parent();
    while let Some(parent) = at {
        if parent.kind() == "aliased_import" {
            return true;
        }
        at = parent.parent().filter(|_| parent.kind() == "dotted_name");
    }
    false
}

/// The first argument of the call of a function with this name, `f(x)` or `m.f(x)`.
fn argument_of<'a>(name: Node<'a>) -> Option<Node<'a>> {
    let parent = name.parent()?;
    let function = match is_field(parent, "attribute", name) {
        true => parent,
        false => name,
    };
    let call = function
        .parent()
        .filter(|call| call.kind() == "call" && is_field(*call, "function", function))?;
    children(call.child_by_field_name("arguments")?)
        .first()
        .copied()
}

/// True for `….state_dict()`, constants and displays of them: the object is not among it.
fn is_own_data(syntax: &Syntax, value: Node<'_>) -> bool {
    let is_own = |value: &Node<'_>| is_own_data(syntax, *value);
    match value.kind() {
        "call" => {
            let function = value.child_by_field_name("function");
            function.is_some_and(|function| {
                function.kind() == "attribute" && last_part(syntax.of(function)) == "state_dict"
            })
        }
        "dictionary" | "list" | "tuple" => children(value).iter().all(is_own),
        "pair" => value
            .child_by_field_name("value")
            .is_some_and(|value| is_own(&value)),
        "binary_operator" => children(value).iter().any(|side| side.kind() == "integer"),
        "integer" | "float" | "string" | "true" | "false" | "none" => true,
        _ => false,
    }
}

/// True for a layer of PyTorch's own, or a variable that only such a layer is assigned to.
fn is_layer(syntax: &Syntax, value: Node<'_>) -> bool {
    let makes = |value: Node<'_>| {
        let function = value.child_by_field_name("function");
        let name = function.map_or("", |function| last_part(syntax.of(function)));
        matches!(name, "TransformerEncoderLayer" | "TransformerDecoderLayer")
    };
    if value.kind() != "identifier" {
        return makes(value);
    }
    let bindings = syntax.bindings(syntax.root(), syntax.of(value));
    let is_made = |node: &Node<'_>| {
        let assigned = node
            .parent()
            .and_then(|parent| parent.child_by_field_name("right"));
        assigned.is_some_and(makes)
    };
    !bindings.is_empty() && bindings.iter().all(is_made)
}

fn pickles(syntax: &Syntax, node: Node<'_>, word: &str, subject: &Subject) -> bool {
    let of_module = node.parent().filter(|parent| parent.kind() == "attribute");
    if PICKLING_ALL.contains(&word) {
        return in_import(node) || is_imported(syntax, word);
    }
    // A function cannot be pickled, whatever it holds.
    if subject.method.is_none() {
        return false;
    }
    let harmless: &[&str] = match word {
        "pickle" => &UNPICKLING,
        _ => &COUNTING,
    };
    match word {
        "pickle" | "multiprocessing" if in_import(node) => {
            is_renamed(node) || imports_more(syntax, node, word, harmless)
        }
        "pickle" | "multiprocessing" => {
            let function = of_module.and_then(|parent| parent.child_by_field_name("attribute"));
            let is_harmless =
                function.is_some_and(|function| harmless.contains(&syntax.of(function)));
            !is_harmless && (word == "multiprocessing" || is_imported(syntax, word))
        }
        "save" => is_from(syntax, node, &["torch"]) && !is_own_data_of(syntax, node),
        "num_workers" => starts_workers(syntax, node),
        _ => PICKLING.contains(&word),
    }
}

/// `from pickle import dump`: more than what is harmless.
fn imports_more(syntax: &Syntax, node: Node<'_>, module: &str, harmless: &[&str]) -> bool {
    let statement = statement(node);
    let is_module = statement
        .child_by_field_name("module_name")
        .is_some_and(|name| last_part(syntax.of(name)) == module);
    let mut cursor = statement.walk();
    is_module
        && statement
            .children_by_field_name("name", &mut cursor)
            .any(|name| !harmless.contains(&syntax.of(name)))
}

/// `num_workers=…` of a call, unless it is 0.
fn starts_workers(syntax: &Syntax, node: Node<'_>) -> bool {
    let keyword = node
        .parent()
        .filter(|parent| parent.kind() == "keyword_argument" && is_field(*parent, "name", node));
    let value = keyword.and_then(|keyword| keyword.child_by_field_name("value"));
    value.is_some_and(|value| syntax.of(value) != "0")
}

/// A use of what notices that an object is freed, under its own name or, where it is imported, under another.
fn notices_end(syntax: &Syntax, node: Node<'_>, word: &str) -> bool {
    if !in_import(node) {
        return WEAK.contains(&word);
    }
    let of_module = is_from(syntax, node, &["weakref"]);
    if is_from(syntax, node, &["_weakref"]) || WEAK.contains(&word) && is_renamed(node) {
        return true;
    }
    let imports_all = all(statement(node))
        .iter()
        .any(|it| it.kind() == "wildcard_import");
    of_module && (is_renamed(node) || imports_all)
}

fn sees_frames(syntax: &Syntax, node: Node<'_>, word: &str) -> bool {
    let is_known =
        OF_FRAMES.contains(&word) || word == "stack" && is_from(syntax, node, &["inspect"]);
    if in_import(node) {
        return is_known && is_renamed(node);
    }
    is_known || word == "warn" && has_third_argument(node)
}

/// `warnings.warn(message, category, 2)`
fn has_third_argument(name: Node<'_>) -> bool {
    let function = match name.parent() {
        Some(parent) if is_field(parent, "attribute", name) => parent,
        _ => name,
    };
    let call = function
        .parent()
        .filter(|call| call.kind() == "call" && is_field(*call, "function", function));
    let arguments = call.and_then(|call| call.child_by_field_name("arguments"));
    arguments.is_some_and(|list| children(list).len() > 2)
}

/// True for `locals()`, `vars()` and `dir()`.
pub fn shows_locals(syntax: &Syntax, node: Node<'_>, word: &str) -> bool {
    let call = node
        .parent()
        .filter(|parent| is_field(*parent, "function", node));
    let arguments = call.and_then(|call| call.child_by_field_name("arguments"));
    OF_LOCALS.contains(&word)
        && syntax.is_variable(node)
        && arguments.is_some_and(|list| children(list).is_empty())
}

/// `weakref.ref(x)` and `weakref.proxy(x)`, unless `x` is what a method is called on: that is the change itself.
fn refers_weakly(syntax: &Syntax, node: Node<'_>, word: &str) -> bool {
    let is_known = match syntax.is_variable(node) {
        true => matches!(word, "ref" | "proxy") && is_imported(syntax, word) && !in_import(node),
        false => matches!(word, "ref" | "proxy") && is_from(syntax, node, &["weakref"]),
    };
    if !is_known || in_import(node) {
        return false;
    }
    // `new = weakref.ref`, `map(weakref.ref, …)` and `class Mine(weakref.ref)` may be of any object.
    argument_of(node).is_none_or(|argument| {
        let method = functions_around(argument).into_iter().next_back();
        let parameters = method.and_then(|method| method.child_by_field_name("parameters"));
        let first = parameters.and_then(|list| children(list).first().copied());
        let is_method = method
            .and_then(scope)
            .is_some_and(|it| it.kind() == "class_definition");
        let first = first.filter(|_| is_method);
        let is_self = first.is_some_and(|first| syntax.of(first) == syntax.of(argument));
        word == "proxy" || !is_self || !is_only_called(syntax, argument)
    })
}

/// True for `variable = ref(argument)` where the variable is only called.
fn is_only_called(syntax: &Syntax, argument: Node<'_>) -> bool {
    let call = argument.parent().and_then(|list| list.parent());
    let assignment = call
        .and_then(|call| call.parent())
        .filter(|it| it.kind() == "assignment");
    let variable = assignment.and_then(|it| it.child_by_field_name("left"));
    let Some((variable, function)) = variable
        .filter(|it| it.kind() == "identifier")
        .zip(functions_around(argument).into_iter().next_back())
    else {
        return false;
    };
    let uses = syntax.variables(function, syntax.of(variable));
    uses.into_iter().filter(|it| *it != variable).all(|it| {
        it.parent()
            .is_some_and(|call| call.kind() == "call" && is_field(call, "function", it))
    })
}

fn finalizes(syntax: &Syntax, node: Node<'_>, word: &str, place: Place) -> bool {
    match word {
        "__del__" => node
            .parent()
            .is_some_and(|parent| is_field(parent, "name", node)),
        "finalize" => place == Place::Own || is_from(syntax, node, &["weakref"]),
        _ => false,
    }
}
