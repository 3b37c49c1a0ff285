//! Which statement of the program stored an object in an attribute: the only one that may have.

use tree_sitter::Node;

use super::descriptor::is_of_other_classes;
use super::family::{decorators, defined, is_one_of};
use super::held::{is_imported, last_part};
use super::reference::named_function;
use super::sources::Source;
use super::stores::{NAMESPACES, Store, bound_by, is_called, namespace, stores};
use super::syntax::{Syntax, all, around, children, functions_around, is_named, scope};
use crate::capture::{ClassSource, is_library_file};
use crate::diagnose::case::short;
use crate::model::report::{Node as Object, NodeKind};

/// What calls of two functions of the standard library make.
const PARTIAL: &str = "functools.partial";
const METHOD: &str = "method";
/// Functions of `builtins` that programs give away.
const BUILT_IN: [&str; 16] = [
    "abs", "all", "any", "bool", "float", "int", "len", "max", "min", "print", "repr", "round",
    "sorted", "str", "sum", "type",
];

/// Whether a statement stored an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    No,
    Maybe,
    /// It makes the function that is stored, or has its name where it is made.
    Surely,
}

/// A statement that may have stored the object.
#[derive(Clone, Copy)]
pub struct Match<'s> {
    pub source: Source<'s>,
    pub store: Store<'s>,
    pub fit: Fit,
    /// True if it copies the same attribute of another object.
    pub copies: bool,
    /// False for a file that has no code of the leak's objects and names none of their classes, and for an attribute of
    /// any name and object: it may well store something else.
    pub is_near: bool,
    /// The class whose method stores it in an attribute of its own object.
    pub class: Option<Node<'s>>,
}

/// Whose attribute a statement sets.
struct Receiver<'s> {
    /// As [`Match::class`].
    class: Option<Node<'s>>,
    /// True if the object that gets it is known to be of the owner's class.
    is_owners: bool,
}

/// An object that an attribute of another has.
pub struct Stored<'a> {
    pub attribute: &'a str,
    pub object: &'a Object,
    /// The classes of the object; `None` if they are not known.
    pub classes: Option<&'a [ClassSource]>,
    /// Those of the object that has the attribute.
    pub owner: &'a [ClassSource],
    /// The files that the objects of the leak are from.
    pub files: &'a [String],
}

/// The code of a function that is stored.
struct Code<'s> {
    source: Source<'s>,
    node: Node<'s>,
}

impl Stored<'_> {
    /// The statements of some files that may have stored it.
    pub fn matches<'s>(&self, sources: &[Source<'s>]) -> Vec<Match<'s>> {
        self.among(sources, stores)
    }

    /// As [`Stored::matches`], of other statements that give an attribute something.
    pub fn among<'s>(
        &self,
        sources: &[Source<'s>],
        statements: fn(&'s Syntax, &str) -> Vec<Store<'s>>,
    ) -> Vec<Match<'s>> {
        let code = self.code(sources);
        let decides = self.decides_what_is_stored(sources);
        let mut found = Vec::new();
        for &source in sources {
            for store in statements(source.syntax, self.attribute) {
                // A library's `setattr` stores what the program gives it, and its copies have what the first has; what
                // stores by any name is not about this one.
                let is_given = is_library_file(source.file)
                    && (store.node.kind() == "call"
                        || store.value.is_none()
                        || !source.syntax.of(store.node).contains(self.attribute));
                let Some(receiver) = self.received(source, &store).filter(|_| !is_given) else {
                    continue;
                };
                let is_of_others = || is_of_other_classes(sources, self.owner, source, store.node);
                if !store.is_named && (decides || is_of_others()) {
                    continue;
                }
                let value = store.value;
                let fit = value.map_or(Fit::Maybe, |it| self.value(source, it, code.as_ref()));
                if fit != Fit::No {
                    found.push(Match {
                        source,
                        store,
                        fit,
                        is_near: receiver.is_owners
                            || fit == Fit::Surely
                            || store.is_named && self.concerns(source),
                        copies: value
                            .is_some_and(|it| is_called(source.syntax, it, self.attribute)),
                        class: receiver.class,
                    });
                }
            }
        }
        found
    }

    /// True if a class of the program has a `__setattr__` for the object that has the attribute: it may store something else
    /// than an assignment gives, and so what stores by any name is not the only one that may have.
    fn decides_what_is_stored(&self, sources: &[Source<'_>]) -> bool {
        let mut own = sources
            .iter()
            .filter(|source| !is_library_file(source.file));
        own.any(|source| {
            let nodes = all(source.syntax.root()).into_iter();
            let mut setters = nodes.filter(|node| {
                node.kind() == "function_definition"
                    && is_named(source.syntax, *node, "__setattr__")
            });
            setters.any(|setter| {
                let class = around(setter, &["class_definition"]);
                class.is_some_and(|class| is_one_of(self.owner, *source, class))
            })
        })
    }

    /// True if an object of the leak is from a file, or if that names a class of the object or of the one that has the
    /// attribute.
    fn concerns(&self, source: Source<'_>) -> bool {
        if self.files.iter().any(|file| file == source.file) {
            return true;
        }
        let classes = self.classes.unwrap_or_default().iter().chain(self.owner);
        let mut program =
            classes.filter(|class| !class.file.as_deref().is_some_and(is_library_file));
        program.any(|class| source.syntax.has_word(short(&class.name)))
    }

    fn code<'s>(&self, sources: &[Source<'s>]) -> Option<Code<'s>> {
        sources.iter().find_map(|&source| {
            let node = named_function(source.syntax, self.object, source.file)?;
            Some(Code { source, node })
        })
    }

    /// Whose attribute a statement sets; `None` if that cannot be the owner.
    fn received<'s>(&self, source: Source<'s>, store: &Store<'s>) -> Option<Receiver<'s>> {
        let Source { syntax, .. } = source;
        let own = |class: Node<'s>| {
            is_one_of(self.owner, source, class).then_some(Receiver {
                class: Some(class),
                is_owners: true,
            })
        };
        let other = |is_owners| Receiver {
            class: None,
            is_owners,
        };
        if let Some(made) = namespace(syntax, store.node) {
            let is_it = match self.owner.first() {
                // A class that is written in C has no source.
                None => made == NAMESPACES[0],
                Some(class) => {
                    let file = class.file.as_deref();
                    made == short(&class.name) && file.is_none_or(is_library_file)
                }
            };
            return is_it.then_some(other(true));
        }
        let Some(receiver) = store.receiver else {
            // `super().__setattr__(name, value)`
            return own(around(store.node, &["class_definition"])?);
        };
        if receiver.kind() != "identifier" {
            let of_class = syntax.of(receiver).ends_with(".__class__")
                || syntax.of(receiver).starts_with("type(");
            return (!of_class).then_some(other(false));
        }
        match own_object(syntax, store.node, syntax.of(receiver)) {
            Own::Object(class) => own(class),
            Own::Class(_) => None,
            Own::No if !defined(syntax, syntax.of(receiver)).is_empty() => None,
            Own::No => match class_of_variable(syntax, store.node, syntax.of(receiver)) {
                Some(class) => is_one_of(self.owner, source, class).then_some(other(true)),
                None => Some(other(false)),
            },
        }
    }

    /// Whether an expression may be the object.
    fn value(&self, source: Source<'_>, value: Node<'_>, code: Option<&Code<'_>>) -> Fit {
        let syntax = source.syntax;
        let parts = match value.kind() {
            "parenthesized_expression" | "boolean_operator" => children(value),
            "conditional_expression" => {
                // The one in the middle is the condition.
                let parts = children(value);
                parts.into_iter().step_by(2).collect()
            }
            "named_expression" => value.child_by_field_name("value").into_iter().collect(),
            _ => Vec::new(),
        };
        if !parts.is_empty() {
            let fits = parts.into_iter().map(|part| self.value(source, part, code));
            return fits.max().unwrap_or(Fit::Maybe);
        }
        let label = self.object.label.as_str();
        if let Some(made) = callable_made(syntax, value)
            && made != kind_of_callable(self.object)
        {
            return Fit::No;
        }
        // A built-in function leads nowhere.
        if is_built_in(syntax, value) {
            return Fit::No;
        }
        if label.starts_with("function ") {
            return match code {
                Some(code) => is_made(code, source, value),
                None if value.kind() == "lambda" => Fit::Maybe,
                None => as_callable(value),
            };
        }
        if let Some(name) = label.strip_prefix("bound method ") {
            return match is_other_method(syntax, value, short(name)) {
                true => Fit::No,
                false => as_callable(value),
            };
        }
        self.plain(source, value)
    }

    /// True if the object may be of a class of a file.
    fn may_be_of(&self, source: Source<'_>, class: Node<'_>) -> bool {
        self.classes
            .is_none_or(|classes| is_one_of(classes, source, class))
    }

    /// As [`Stored::value`], of an object that is no function.
    fn plain(&self, source: Source<'_>, value: Node<'_>) -> Fit {
        let syntax = source.syntax;
        let type_name = self.object.type_name.as_str();
        let fits = match value.kind() {
            "list" | "list_comprehension" => type_name == "list",
            "dictionary" | "dictionary_comprehension" => type_name == "dict",
            "set" | "set_comprehension" => type_name == "set",
            "tuple" | "expression_list" => type_name == "tuple",
            "generator_expression" => type_name == "generator",
            "lambda"
            | "string"
            | "concatenated_string"
            | "none"
            | "true"
            | "false"
            | "integer"
            | "float" => false,
            "identifier" => match own_object(syntax, value, syntax.of(value)) {
                Own::Object(class) => self.may_be_of(source, class),
                Own::Class(_) => self.object.kind == NodeKind::Class,
                Own::No => {
                    let class = class_of_variable(syntax, value, syntax.of(value));
                    class.is_none_or(|class| self.may_be_of(source, class))
                        && !is_function(syntax, value)
                }
            },
            "call" => {
                let made = class_made(syntax, value);
                made.is_none_or(|class| self.may_be_of(source, class))
            }
            _ => true,
        };
        if fits { Fit::Maybe } else { Fit::No }
    }
}

/// Whether an expression makes or is a function of which the code is known.
fn is_made(code: &Code<'_>, source: Source<'_>, value: Node<'_>) -> Fit {
    let syntax = source.syntax;
    let is_here = std::ptr::eq(code.source.syntax, syntax);
    if is_here && value.byte_range().contains(&code.node.start_byte()) {
        return Fit::Surely;
    }
    let own = code.node.child_by_field_name("name");
    let own = own.map(|name| code.source.syntax.of(name));
    if value.kind() == "identifier" {
        let is_it = is_here && own == Some(syntax.of(value)) && scope(value) == scope(code.node);
        let is_other = is_function(syntax, value) && !is_it;
        return match (is_it, is_other) {
            (true, _) => Fit::Surely,
            (_, true) => Fit::No,
            _ => Fit::Maybe,
        };
    }
    as_callable(value)
}

/// True for the name of a function of `builtins`, if nothing in the file gives it another value.
fn is_built_in(syntax: &Syntax, value: Node<'_>) -> bool {
    value.kind() == "identifier"
        && BUILT_IN.contains(&syntax.of(value))
        && syntax.bindings(syntax.root(), syntax.of(value)).is_empty()
        && !all(syntax.root())
            .iter()
            .any(|node| node.kind() == "wildcard_import")
}

/// What `functools.partial(…)` and `types.MethodType(…)` make; `None` for other expressions.
fn callable_made(syntax: &Syntax, value: Node<'_>) -> Option<&'static str> {
    let function = value.child_by_field_name("function");
    let function = syntax.of(function.filter(|_| value.kind() == "call")?);
    let first = function.split('.').next().unwrap_or_default();
    let made = match last_part(function) {
        "partial" => PARTIAL,
        "MethodType" => METHOD,
        _ => return None,
    };
    is_imported(syntax, first).then_some(made)
}

fn kind_of_callable(object: &Object) -> &str {
    match object.label.starts_with("bound method ") {
        true => METHOD,
        false => &object.type_name,
    }
}

/// Whether an expression may be a function that is made elsewhere.
fn as_callable(value: Node<'_>) -> Fit {
    match value.kind() {
        "identifier" | "attribute" | "call" | "subscript" | "await" => Fit::Maybe,
        _ => Fit::No,
    }
}

/// True for another method of the class than one with this name: `self.step`, which no assignment of the file replaces.
fn is_other_method(syntax: &Syntax, value: Node<'_>, method: &str) -> bool {
    let (Some(object), Some(name)) = (
        value.child_by_field_name("object"),
        value.child_by_field_name("attribute"),
    ) else {
        return false;
    };
    let name = syntax.of(name);
    let Own::Object(class) = own_object(syntax, value, syntax.of(object)) else {
        return false;
    };
    let body = class.child_by_field_name("body").map(children);
    let mut statements = body.unwrap_or_default().into_iter();
    let is_defined = statements.any(|it| is_named(syntax, it, name));
    let mut replaced = stores(syntax, name).into_iter();
    is_defined && name != method && replaced.all(|store| store.node.kind() == "call")
}

/// What the first parameter of a method is: an object of the class, the class itself, or neither.
pub enum Own<'s> {
    Object(Node<'s>),
    Class(Node<'s>),
    No,
}

/// True for the first parameter of a method around a node: `self`.
pub fn is_own_object(syntax: &Syntax, node: Node<'_>, variable: &str) -> bool {
    matches!(own_object(syntax, node, variable), Own::Object(_))
}

/// Whether a variable is the first parameter of a method around a node.
pub fn own_object<'s>(syntax: &Syntax, node: Node<'s>, variable: &str) -> Own<'s> {
    let method = functions_around(node).into_iter().find(|function| {
        let parameters = function.child_by_field_name("parameters");
        parameters.is_some_and(|all| !syntax.bindings(all, variable).is_empty())
    });
    let Some(method) = method else {
        return Own::No;
    };
    let parameters = method.child_by_field_name("parameters").map(children);
    let first = parameters.and_then(|all| all.into_iter().next());
    let is_first = first.is_some_and(|first| {
        let name = syntax.of(first).split([':', '=']).next();
        name.is_some_and(|name| name.trim_end() == variable)
    });
    let class = around(method, &["class_definition", "function_definition"]);
    let class = class.filter(|class| class.kind() == "class_definition" && is_first);
    let Some(class) = class else {
        return Own::No;
    };
    let is_decorated = |name: &str| decorators(syntax, method).any(|it| it.contains(name));
    if is_decorated("staticmethod") {
        return Own::No;
    }
    let of_class = ["__new__", "__init_subclass__", "__class_getitem__"];
    match is_decorated("classmethod") || of_class.iter().any(|it| is_named(syntax, method, it)) {
        true => Own::Class(class),
        false => Own::Object(class),
    }
}

/// The class of the file that a variable has an object of, by its only assignment.
pub fn class_of_variable<'s>(
    syntax: &'s Syntax,
    node: Node<'s>,
    variable: &str,
) -> Option<Node<'s>> {
    let within = scope(node).unwrap_or_else(|| syntax.root());
    let [binding] = syntax.bindings(within, variable)[..] else {
        return None;
    };
    let (_, value) = bound_by(binding).filter(|_| scope(binding) == scope(node))?;
    class_made(syntax, value?)
}

/// The class of the file that a call makes an object of.
fn class_made<'s>(syntax: &'s Syntax, call: Node<'_>) -> Option<Node<'s>> {
    let function = call.child_by_field_name("function")?;
    (function.kind() == "identifier").then(|| only_class(syntax, syntax.of(function)))?
}

fn only_class<'s>(syntax: &'s Syntax, name: &str) -> Option<Node<'s>> {
    if syntax.bindings(syntax.root(), name).len() != 1 {
        return None;
    }
    defined(syntax, name).pop()
}

/// True for the name of a function with a decorator that stands in the same scope.
pub fn is_decorated(syntax: &Syntax, name: Node<'_>) -> bool {
    let within = scope(name).unwrap_or_else(|| syntax.root());
    let bindings = syntax.bindings(within, syntax.of(name));
    bindings.iter().any(|binding| {
        let parent = binding.parent();
        parent.is_some_and(|parent| {
            parent.kind() == "function_definition" && decorators(syntax, parent).next().is_some()
        })
    })
}

/// True for the name of a function that stands in the same scope.
fn is_function(syntax: &Syntax, name: Node<'_>) -> bool {
    let within = scope(name).unwrap_or_else(|| syntax.root());
    let bindings = syntax.bindings(within, syntax.of(name));
    // A decorator may make anything of one.
    let is_definition = |binding: &Node<'_>| {
        let parent = binding.parent();
        parent.is_some_and(|parent| {
            parent.kind() == "function_definition" && decorators(syntax, parent).next().is_none()
        })
    };
    !bindings.is_empty() && bindings.iter().all(is_definition)
}
