//! What holds an object while an attribute of it is called.

use tree_sitter::Node;

use super::syntax::{Syntax, all, children, is_field, lines, scope, statement};

/// What an object must be assigned as to stay where it is.
const LITERALS: [&str; 5] = [
    "list",
    "dictionary",
    "tuple",
    "list_comprehension",
    "dictionary_comprehension",
];
/// Functions and annotations of containers that keep their items.
const CONTAINERS: [&str; 8] = [
    "list",
    "dict",
    "tuple",
    "List",
    "Dict",
    "deque",
    "OrderedDict",
    "ModuleList",
];
/// Methods by which a class or a module makes an attribute when it is read.
pub const READERS: [&str; 3] = ["__get__", "__getattr__", "__getattribute__"];
/// What runs other code when it is evaluated.
const RUNNING: [&str; 3] = ["call", "await", "yield"];

/// An attribute by which an object is reached: it must be a plain one, not one that makes the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub name: String,
    /// The line that reaches the object, from 1.
    pub line: usize,
    /// True if it must stay as `__init__` sets it: other code runs between reaching the object and the call.
    pub stays: bool,
    /// True if it may be of an imported module.
    pub of_module: bool,
}

/// The attributes on the way to the object of which an attribute is called, such as `a` in `self.a.callback()`; `None`
/// if nothing may hold the object during the call.
pub fn way(syntax: &Syntax, object: Node<'_>, call: Node<'_>) -> Option<Vec<Link>> {
    let arguments = call.child_by_field_name("arguments");
    let inside = arguments.map(all).unwrap_or_default();
    let runs_code = inside.iter().any(|node| RUNNING.contains(&node.kind()));
    let mut names = Vec::new();
    let mut at = object;
    while at.kind() != "identifier" {
        at = match at.kind() {
            "attribute" => {
                names.push(syntax.of(at.child_by_field_name("attribute")?));
                at.child_by_field_name("object")?
            }
            "subscript" => {
                let container = at.child_by_field_name("value")?;
                if runs_code || !keeps_items(syntax, container) {
                    return None;
                }
                container
            }
            _ => return None,
        };
    }
    let variable = syntax.of(at);
    let is_set_inside = inside.iter().any(|node| {
        node.kind() == "named_expression" && !syntax.bindings(*node, variable).is_empty()
    });
    if is_set_inside || runs_code && is_shared(syntax, variable) {
        return None;
    }
    let of_module = is_imported(syntax, variable);
    let link = |name: &str| Link {
        name: name.to_owned(),
        line: lines(object).0,
        stays: runs_code,
        of_module,
    };
    Some(names.into_iter().map(link).collect())
}

/// True for a variable that functions other than its own assign.
pub fn is_shared(syntax: &Syntax, variable: &str) -> bool {
    let bindings = syntax.bindings(syntax.root(), variable);
    bindings.iter().any(|node| {
        node.parent().is_some_and(|parent| {
            matches!(parent.kind(), "global_statement" | "nonlocal_statement")
        })
    })
}

/// True if only imports give a variable of the file its value.
pub fn is_imported(syntax: &Syntax, variable: &str) -> bool {
    let bindings = syntax.bindings(syntax.root(), variable);
    !bindings.is_empty() && bindings.iter().all(|&node| in_import(node))
}

/// True for a name in an import.
pub fn in_import(node: Node<'_>) -> bool {
    statement(node).kind().starts_with("import")
}

/// True for a variable or attribute that the file only ever sets to lists, dictionaries and tuples.
fn keeps_items(syntax: &Syntax, container: Node<'_>) -> bool {
    let name = match container.kind() {
        "identifier" => Some(container),
        "attribute" => container.child_by_field_name("attribute"),
        _ => None,
    };
    let Some(name) = name.map(|name| syntax.of(name)) else {
        return false;
    };
    let mut found = false;
    for node in all(syntax.root()) {
        if node.kind() != "identifier" || syntax.of(node) != name {
            continue;
        }
        let Some(bound) = bound_by(syntax, node, container.kind()) else {
            continue;
        };
        found = true;
        if !is_container(syntax, bound) {
            return false;
        }
    }
    found
}

/// What gives a variable or attribute its value where a name of it stands; `None` if nothing does.
fn bound_by<'a>(syntax: &Syntax, name: Node<'a>, kind: &str) -> Option<Node<'a>> {
    let parent = name.parent()?;
    if kind == "identifier" {
        let is_bound =
            syntax.is_variable(name) && syntax.bindings(parent, syntax.of(name)).contains(&name);
        return is_bound.then_some(parent);
    }
    let is_attribute = parent.kind() == "attribute" && is_field(parent, "attribute", name);
    let target = if is_attribute { parent } else { name };
    let assignment = target.parent()?;
    let is_target = is_field(assignment, "left", target);
    let of_class =
        is_attribute || scope(assignment).is_some_and(|scope| scope.kind() == "class_definition");
    (is_target && of_class).then_some(assignment)
}

/// True for an assignment of a container, and a parameter that is annotated as one.
fn is_container(syntax: &Syntax, binding: Node<'_>) -> bool {
    if let Some(value) = binding.child_by_field_name("right") {
        let function = value.child_by_field_name("function");
        return LITERALS.contains(&value.kind())
            || function.is_some_and(|name| CONTAINERS.contains(&last_part(syntax.of(name))));
    }
    let annotation = binding.child_by_field_name("type");
    annotation.is_some_and(|annotation| {
        let text = syntax.of(annotation);
        CONTAINERS.contains(&last_part(text.split('[').next().unwrap_or_default()))
    })
}

/// `c` of `a.b.c`.
pub fn last_part(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or_default()
}

/// What a file says of an attribute.
#[derive(Default)]
pub struct Facts {
    /// It is assigned somewhere.
    pub is_assigned: bool,
    /// It is assigned elsewhere than in `__init__` and in the body of a class.
    pub changes: bool,
    /// The line in which a function or property has its name.
    pub defined: Option<usize>,
}

impl Facts {
    pub fn of(syntax: &Syntax, name: &str) -> Self {
        let mut facts = Self::default();
        for node in all(syntax.root()) {
            if node.kind() != "identifier" || syntax.of(node) != name {
                continue;
            }
            let Some(parent) = node.parent() else {
                continue;
            };
            if makes(syntax, node, parent) {
                facts.defined = Some(lines(node).0);
            } else if let Some(assignment) = set_by(syntax, node, parent) {
                facts.is_assigned = true;
                facts.changes |= !in_constructor(syntax, assignment);
            }
        }
        facts
    }

    /// What this file and others say.
    pub fn join(&mut self, other: &Self) {
        self.is_assigned |= other.is_assigned;
        self.changes |= other.changes;
    }
}

/// True for the name of a method or property, for what a class gets from a call, which may be a descriptor, and for
/// `owner.name = property(…)`.
fn makes(syntax: &Syntax, name: Node<'_>, parent: Node<'_>) -> bool {
    let of_class = scope(parent).is_some_and(|scope| scope.kind() == "class_definition");
    let is_part = parent.kind() == "attribute" && is_field(parent, "attribute", name);
    let (target, assignment) = match (is_part, parent.parent()) {
        (true, Some(around)) => (parent, around),
        _ => (name, parent),
    };
    let value = assignment.child_by_field_name("right");
    let function = value.and_then(|value| value.child_by_field_name("function"));
    let is_given = function.filter(|_| is_field(assignment, "left", target));
    let is_property = |function| syntax.of(function).ends_with("property");
    let is_field_of_dataclass = |function| last_part(syntax.of(function)) == "field";
    let defines = parent.kind() == "function_definition" && is_field(parent, "name", name);
    match is_given {
        Some(function) if is_part => is_property(function),
        Some(function) => of_class && !is_field_of_dataclass(function),
        None => of_class && defines,
    }
}

/// The line in which a class decides what its attributes are when they are read.
pub fn reads_its_own_way(syntax: &Syntax) -> Option<usize> {
    let mut names = all(syntax.root()).into_iter().filter(|node| {
        let defines = node
            .parent()
            .is_some_and(|it| it.kind() == "function_definition" && is_field(it, "name", *node));
        defines && READERS.contains(&syntax.of(*node))
    });
    names.next().map(|name| lines(name).0)
}

/// The statement by which an attribute gets a value, or is declared with a type.
fn set_by<'a>(syntax: &Syntax, name: Node<'a>, parent: Node<'a>) -> Option<Node<'a>> {
    let is_attribute = parent.kind() == "attribute" && is_field(parent, "attribute", name);
    let target = if is_attribute { parent } else { name };
    let mut around = target.parent()?;
    while matches!(
        around.kind(),
        "pattern_list" | "tuple_pattern" | "list_pattern"
    ) {
        around = around.parent()?;
    }
    let sets = match around.kind() {
        "assignment" | "augmented_assignment" | "for_statement" => {
            around.child_by_field_name("left").is_some_and(|left| {
                left.byte_range().contains(&target.start_byte())
                    && left.end_byte() >= target.end_byte()
            })
        }
        "as_pattern_target" | "delete_statement" => true,
        _ => false,
    };
    let of_class = scope(around).is_none_or(|scope| scope.kind() == "class_definition");
    (sets && (is_attribute || of_class && syntax.is_variable(name))).then_some(around)
}

fn in_constructor(syntax: &Syntax, assignment: Node<'_>) -> bool {
    scope(assignment).is_none_or(|scope| {
        let name = scope.child_by_field_name("name");
        scope.kind() == "class_definition"
            || name.is_some_and(|name| matches!(syntax.of(name), "__init__" | "__post_init__"))
    })
}

/// True if an expression runs no other code before a part of it is evaluated.
pub fn is_first(expression: Node<'_>, part: Node<'_>) -> bool {
    let is_before = |node: &Node<'_>| node.end_byte() <= part.start_byte();
    let holds = |node: &Node<'_>| node.byte_range().contains(&part.start_byte());
    all(expression).iter().all(|node| match node.kind() {
        "call" | "subscript" => !is_before(node),
        // The condition is evaluated first, and a part of a comprehension several times.
        "conditional_expression" => !holds(node) || children(*node).get(1).is_some_and(holds),
        "list_comprehension" | "set_comprehension" | "dictionary_comprehension" => !holds(node),
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Syntax {
        Syntax::parse(text.to_owned()).unwrap()
    }

    /// The names of the way to the object of the first call in the last statement.
    fn names(text: &str) -> Option<Vec<String>> {
        let syntax = parsed(text);
        let last = children(syntax.root()).into_iter().next_back()?;
        let call = all(last).into_iter().find(|node| node.kind() == "call")?;
        let function = call.child_by_field_name("function")?;
        let object = function.child_by_field_name("object")?;
        let way = way(&syntax, object, call)?;
        Some(way.into_iter().map(|link| link.name).collect())
    }

    #[test]
    fn variables_attributes_and_items_of_lists_hold_an_object() {
        assert_eq!(names("o.f(1)"), Some(Vec::new()));
        assert_eq!(names("o.a.b.f(g())"), Some(vec!["b".into(), "a".into()]));
        assert_eq!(names("x = [1]\nx[0].f(1)"), Some(Vec::new()));
        assert_eq!(names("x = [1]\nx = y\nx[0].f(1)"), None);
        assert_eq!(names("x = [1]\nx[0].f(g())"), None);
        assert_eq!(names("x[0].f(1)"), None);
        assert_eq!(names("g().f(1)"), None);
        assert_eq!(names("o.f((o := 1))"), None);
    }

    #[test]
    fn a_property_makes_what_it_returns() {
        let facts = |text: &str| Facts::of(&parsed(text), "a");
        assert!(facts("class C:\n    def a(self): pass").defined.is_some());
        assert!(facts("class C:\n    a = property(f)").defined.is_some());
        assert!(facts("def a(): pass").defined.is_none());
        let set = facts("class C:\n    def __init__(self):\n        self.a = 1");
        assert!(set.is_assigned && !set.changes);
        assert!(facts("def f(o):\n    o.a = 1").changes);
        assert!(facts("def f(o):\n    o.b, o.a = 1, 2").changes);
        assert!(!facts("a = b.a").changes);
    }

    #[test]
    fn what_runs_code_comes_before() {
        let first = |text: &str| {
            let syntax = parsed(text);
            let part = syntax.variables(syntax.root(), "me")[0];
            is_first(syntax.root(), part)
        };
        assert!(first("x + me.a") && first("f(me.a, g())") && first("x if me.a else y"));
        assert!(!first("f() + me.a") && !first("me.a if f() else y"));
        assert!(!first("[me.a for x in y]") && !first("f(g(), me)"));
    }
}
