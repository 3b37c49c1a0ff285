//! How a file uses an attribute, and whether it could notice that this holds its object weakly.

use tree_sitter::Node;

use super::change::{Place, Subject};
use super::held::{Link, is_shared, last_part, way};
use super::signs::{is_no_object, sign};
use super::syntax::{Syntax, all, around, children, is_field, lines};
use super::unlike::{Unlike, about_self};
use super::uses::is_tested;

/// What a file does with an attribute that it only calls.
#[derive(Default)]
pub struct Uses {
    /// The attributes by which it reaches the objects.
    pub links: Vec<Link>,
    /// Where a key of an item has the attribute's name.
    pub key: Option<String>,
    /// Where it gets an attribute by a name from elsewhere.
    pub getter: Option<String>,
    /// What it does with objects that must have nothing to do with the class.
    pub unlike: Vec<Unlike>,
}

/// What a file does with an attribute, if it only calls it.
///
/// A weak reference to the object is then as good as a strong one: whoever calls holds the object.
///
/// # Errors
/// Why the attribute may be more than called on an object that is alive.
pub fn only_called(syntax: &Syntax, subject: &Subject, place: Place) -> Result<Uses, String> {
    let mut uses = Uses::default();
    for node in all(syntax.root()) {
        let why = match node.kind() {
            "attribute" if named(syntax, node) == subject.attribute => {
                uses.links.extend(used(syntax, node, &subject.attribute)?);
                None
            }
            "attribute" => replaced(syntax, node, subject),
            "string_content" => {
                let found = by_name(syntax, node, subject);
                let kept = found.filter(|_| place != Place::Own && is_key(node));
                uses.key = uses.key.or_else(|| kept.clone());
                by_name(syntax, node, subject).filter(|_| kept.is_none())
            }
            "keyword_pattern" | "class_pattern" => matched(syntax, node, subject),
            "keyword_argument" => replaced_by_keyword(syntax, node, subject),
            "call" => {
                let found = by_any_name(syntax, node, subject, place, &mut uses.links);
                let found = uses.unless_unlike(syntax, node, found);
                let unrelated = place == Place::Other { is_related: false };
                uses.getter = uses.getter.or_else(|| found.clone());
                found.filter(|_| !unrelated)
            }
            _ => None,
        };
        let why = why.or_else(|| {
            let found = sign(syntax, node, subject, place);
            uses.unless_unlike(syntax, node, found)
        });
        if let Some(why) = why {
            return Err(why);
        }
    }
    Ok(uses)
}

impl Uses {
    /// Why a node may be more than a call; nothing if it is about an object of another class, which is to be checked
    /// in all files together.
    fn unless_unlike(
        &mut self,
        syntax: &Syntax,
        node: Node<'_>,
        why: Option<String>,
    ) -> Option<String> {
        let why = why?;
        match about_self(syntax, node, &why) {
            Some(unlike) => self.unlike.push(unlike),
            None => return Some(why),
        }
        None
    }
}

/// True if the file calls an attribute of this name.
pub fn is_called(syntax: &Syntax, attribute: &str) -> bool {
    all(syntax.root()).into_iter().any(|node| {
        let function = node.child_by_field_name("function");
        let name = function.and_then(|function| function.child_by_field_name("attribute"));
        node.kind() == "call" && name.is_some_and(|name| syntax.of(name) == attribute)
    })
}

fn named<'a>(syntax: &'a Syntax, attribute: Node<'a>) -> &'a str {
    let name = attribute.child_by_field_name("attribute");
    name.map_or("", |name| syntax.of(name))
}

/// The way to the object where the attribute is stored, tested or called.
fn used(syntax: &Syntax, node: Node<'_>, attribute: &str) -> Result<Vec<Link>, String> {
    let line = lines(node).0;
    let as_value = format!(
        "`{attribute}` is used as a value in line {line}, and may be called when its object is gone"
    );
    let parent = node.parent().ok_or_else(|| as_value.clone())?;
    let is_plain = match parent.kind() {
        "assignment" => is_field(parent, "left", node),
        "delete_statement" => true,
        "call" if is_field(parent, "function", node) => {
            let object = node.child_by_field_name("object");
            let object = object.ok_or_else(|| as_value.clone())?;
            return way(syntax, object, parent).ok_or_else(|| {
                let text = syntax.of(object).lines().next().unwrap_or_default();
                format!(
                    "line {line} calls `{attribute}` of the value of `{text}`, which perhaps nothing else keeps alive during the call"
                )
            });
        }
        "keyword_argument" => is_lent_as_key(syntax, node, parent),
        "argument_list" => calls_builtin(syntax, parent.parent(), &["callable", "bool"]),
        // A function is true, so the value is that of the other side.
        "boolean_operator" if is_field(parent, "left", node) => {
            let operator = parent.child_by_field_name("operator");
            operator.is_some_and(|operator| syntax.of(operator) == "and") || is_tested(node)
        }
        _ => is_tested(node),
    };
    is_plain.then(Vec::new).ok_or(as_value)
}

/// True for `sorted(…, key=variable.attribute)`, which calls the attribute and does not keep it: nobody assigns the
/// variable meanwhile.
fn is_lent_as_key(syntax: &Syntax, node: Node<'_>, keyword: Node<'_>) -> bool {
    let is_key = is_field(keyword, "value", node)
        && keyword
            .child_by_field_name("name")
            .is_some_and(|name| syntax.of(name) == "key");
    let call = keyword.parent().and_then(|list| list.parent());
    let object = node.child_by_field_name("object");
    is_key
        && calls_builtin(syntax, call, &["sorted", "min", "max"])
        && object.is_some_and(|object| {
            object.kind() == "identifier" && !is_shared(syntax, syntax.of(object))
        })
}

/// True for the call of one of some functions that the file does not define.
fn calls_builtin(syntax: &Syntax, call: Option<Node<'_>>, names: &[&str]) -> bool {
    let function = call.and_then(|call| call.child_by_field_name("function"));
    function.is_some_and(|function| {
        let name = syntax.of(function);
        names.contains(&name) && syntax.bindings(syntax.root(), name).is_empty()
    })
}

/// Why a bound method may be another by the time of the call.
fn replaced(syntax: &Syntax, node: Node<'_>, subject: &Subject) -> Option<String> {
    let method = subject.method.as_deref()?;
    let is_target = is_target(node);
    let name = named(syntax, node);
    (is_target && (name == method || name == "__class__")).then(|| {
        let line = lines(node).0;
        format!("`{method}` is itself replaced in line {line}")
    })
}

/// Why `mock.patch.multiple(Owner, method=…)` replaces the method.
fn replaced_by_keyword(syntax: &Syntax, keyword: Node<'_>, subject: &Subject) -> Option<String> {
    let method = subject.method.as_deref()?;
    let name = keyword.child_by_field_name("name")?;
    let call = keyword.parent()?.parent()?;
    let function = syntax.of(call.child_by_field_name("function")?);
    (syntax.of(name) == method && last_part(function) == "multiple").then(|| {
        let line = lines(keyword).0;
        format!("`{method}` is itself replaced in line {line}")
    })
}

/// True for what gets a value: alone or among others, by an assignment, a loop or a `with` statement.
fn is_target(node: Node<'_>) -> bool {
    const AMONG: [&str; 9] = [
        "pattern_list",
        "tuple_pattern",
        "list_pattern",
        "list_splat_pattern",
        "expression_list",
        "tuple",
        "list",
        "list_splat",
        "parenthesized_expression",
    ];
    let Some(parent) = node.parent() else {
        return false;
    };
    match parent.kind() {
        "as_pattern_target" | "delete_statement" => true,
        kind if AMONG.contains(&kind) => is_target(parent),
        _ => is_field(parent, "left", node),
    }
}

/// Why a string may be the name of the attribute.
fn by_name(syntax: &Syntax, node: Node<'_>, subject: &Subject) -> Option<String> {
    let (text, line) = (syntax.of(node), lines(node).0);
    // `'trainer.callback'`, as `operator.attrgetter` and `mock.patch` take it.
    let in_path = |name: &str| is_path(text) && text.split('.').skip(1).any(|it| it == name);
    let has = |name: &str| text == name || in_path(name);
    let is_method = subject.method.as_deref().is_some_and(has);
    if !is_method && !has(&subject.attribute) || is_asked_for(syntax, node) {
        return None;
    }
    if let Some(method) = subject.method.as_deref().filter(|_| is_method) {
        return Some(format!(
            "`{method}` is itself replaced, or reached by name, in line {line}"
        ));
    }
    Some(format!(
        "line {line} has the string '{text}', which may name the attribute"
    ))
}

/// True for names with dots between them.
fn is_path(text: &str) -> bool {
    let is_name =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_');
    text.contains('.') && text.split('.').all(is_name)
}

/// True for the name in `hasattr(object, 'name')`.
fn is_asked_for(syntax: &Syntax, content: Node<'_>) -> bool {
    let call = around(content, &["call", "subscript", "lambda"]);
    calls_builtin(syntax, call, &["hasattr"])
}

/// True for a string that is the key of an item, or compared.
fn is_key(content: Node<'_>) -> bool {
    let Some(string) = content.parent() else {
        return false;
    };
    let Some(parent) = string.parent() else {
        return false;
    };
    match parent.kind() {
        "pair" => is_field(parent, "key", string),
        "subscript" => is_field(parent, "subscript", string),
        "comparison_operator" | "expression_statement" => true,
        _ => false,
    }
}

/// Why a pattern of a `match` statement may take the attribute.
fn matched(syntax: &Syntax, pattern: Node<'_>, subject: &Subject) -> Option<String> {
    let parts = children(pattern);
    let first = parts.first().map(|first| syntax.of(*first))?;
    let takes = match pattern.kind() {
        "keyword_pattern" => first == subject.attribute,
        _ => {
            let is_positional = |part: &Node<'_>| {
                part.named_child(0)
                    .is_none_or(|inner| inner.kind() != "keyword_pattern")
            };
            let is_ours = |class: &String| class == last_part(first);
            subject.classes.iter().any(is_ours) && parts[1..].iter().any(is_positional)
        }
    };
    takes.then(|| {
        let line = lines(pattern).0;
        format!(
            "a pattern in line {line} may take `{}` as a value",
            subject.attribute
        )
    })
}

/// Why a call may get any attribute.
fn by_any_name(
    syntax: &Syntax,
    call: Node<'_>,
    subject: &Subject,
    place: Place,
    links: &mut Vec<Link>,
) -> Option<String> {
    let function = call.child_by_field_name("function")?;
    let sets = match last_part(syntax.of(function)) {
        "getattr" | "attrgetter" | "getattr_static" => false,
        "setattr" | "delattr" => true,
        _ => return None,
    };
    let arguments = call.child_by_field_name("arguments").map(children);
    let arguments = arguments.unwrap_or_default();
    let is_getter = last_part(syntax.of(function)) == "attrgetter";
    let name = arguments.get(usize::from(!is_getter));
    let is_known = name.is_some_and(|name| is_other_name(syntax, *name, subject));
    let is_elsewhere = !is_getter
        && arguments
            .first()
            .is_some_and(|it| is_no_object(syntax, *it));
    let is_harmless = place != Place::Own && sets && subject.method.is_none();
    if is_known || is_elsewhere || is_harmless {
        return None;
    }
    let at_once = called_at_once(syntax, call, &arguments).filter(|_| !is_getter);
    if let Some(way) = at_once {
        links.extend(way);
        return None;
    }
    let line = lines(call).0;
    Some(format!(
        "line {line} gets an attribute whose name is not known"
    ))
}

/// The way to the object of `getattr(o, name)(…)`, which is held during the call.
fn called_at_once(syntax: &Syntax, call: Node<'_>, arguments: &[Node<'_>]) -> Option<Vec<Link>> {
    let outer = call.parent();
    let outer = outer.filter(|outer| outer.kind() == "call" && is_field(*outer, "function", call));
    way(syntax, *arguments.first()?, outer?)
}

/// True for a name that is written, or that begins otherwise than the attribute; a written name is found by itself.
fn is_other_name(syntax: &Syntax, name: Node<'_>, subject: &Subject) -> bool {
    let first = match name.kind() {
        "string" => name,
        "binary_operator" => match name.child_by_field_name("left") {
            Some(left) if left.kind() == "string" => left,
            _ => return false,
        },
        _ => return false,
    };
    let parts = children(first);
    let is_written =
        name.kind() == "string" && parts.iter().all(|part| part.kind() != "interpolation");
    let content = parts.get(1).filter(|part| part.kind() == "string_content");
    let start = content.map_or("", |part| syntax.of(*part));
    let names = [Some(&subject.attribute), subject.method.as_ref()];
    let fits = |name: &String| name.starts_with(start);
    is_written || !start.is_empty() && !names.into_iter().flatten().any(fits)
}
