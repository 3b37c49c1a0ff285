//! Statements by which an object begins anew as a whole, whatever its attributes are.

use tree_sitter::Node;

use super::held::last_part;
use super::owner::{Named, Search};
use super::syntax::{Syntax, all, around, children, is_named};

/// The statements that make the object anew that has the attribute, where its owner is named, such as `self.meter = Meter()`;
/// and those in its class that set all its attributes: `self.__init__()`, `setattr(self, name, default())`,
/// `self.__dict__.update(defaults)`.
pub fn begun<'s>(syntax: &'s Syntax, search: &Search<'_, 's>) -> Vec<Node<'s>> {
    let Named::Attribute { class, name } = &search.owner.named else {
        return Vec::new();
    };
    let is_made = |it: &Node<'s>| {
        let value = it.child_by_field_name("right");
        let function = value.and_then(|it| it.child_by_field_name("function"));
        let target = it.child_by_field_name("left");
        let name = target.map_or("", |it| last_part(syntax.of(it)));
        function.is_some_and(|it| last_part(syntax.of(it)) == *class)
            && search.owner.path.contains(&name)
    };
    let is_in_family = |it: &Node<'s>| {
        let around = around(*it, &["class_definition"]);
        let mut family = search.family.0.iter();
        around.is_some_and(|around| family.any(|name| is_named(syntax, around, name)))
    };
    let mut found = all(syntax.root());
    found.retain(|it| match it.kind() {
        "assignment" => is_made(it),
        "call" => sets_all(syntax, *it, name) && is_in_family(it),
        _ => false,
    });
    found
}

/// True for a call that sets an attribute of `self`, whatever its name is where it is called, or all of them.
fn sets_all(syntax: &Syntax, call: Node<'_>, attribute: &str) -> bool {
    let function = call.child_by_field_name("function");
    let function = function.map_or("", |it| syntax.of(it));
    let arguments = call
        .child_by_field_name("arguments")
        .map_or_else(Vec::new, children);
    let is_attribute = |it: Node<'_>| {
        it.kind() == "string" && syntax.of(it).trim_matches(['"', '\'']) == attribute
    };
    match function {
        "self.__init__" => true,
        "setattr" => {
            let [object, name, _] = arguments[..] else {
                return false;
            };
            syntax.of(object) == "self" && (is_attribute(name) || is_one_of_own(syntax, name))
        }
        "self.__dict__.clear" | "vars(self).clear" => true,
        "self.__dict__.update" | "vars(self).update" => {
            arguments.iter().any(|it| match it.kind() {
                "keyword_argument" => it
                    .child_by_field_name("name")
                    .is_some_and(|it| syntax.of(it) == attribute),
                "dictionary" => children(*it)
                    .into_iter()
                    .filter_map(|it| it.child_by_field_name("key"))
                    .any(is_attribute),
                // What it has kept of its own.
                _ => syntax.of(*it).contains("self."),
            })
        }
        _ => false,
    }
}

/// True for the variable of a loop over what the object has: `for name in self.defaults`, `for name in vars(self)`.
fn is_one_of_own(syntax: &Syntax, name: Node<'_>) -> bool {
    let over = around(name, &["for_statement"]);
    over.is_some_and(|over| {
        let part = |field| over.child_by_field_name(field);
        let is_target = part("left").is_some_and(|left| {
            let mut parts = all(left).into_iter();
            parts.any(|it| syntax.of(it) == syntax.of(name))
        });
        let is_own = part("right").is_some_and(|it| {
            let mut parts = all(it).into_iter();
            parts.any(|it| syntax.of(it) == "self")
        });
        is_target && is_own
    })
}
