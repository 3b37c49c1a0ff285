//! Where a file of the program names what grows, also by another name, and what it does with it there.

use std::collections::BTreeSet;

use tree_sitter::Node;

use super::container::same_key;
use super::family::decorators;
use super::mention::{Grows, Use, used, whole};
use super::owner::{Named, Search};
use super::shrinking::{given_to, length, method, taking, turning};
use super::sources::Source;
use super::stores::{bound_by, is_called};
use super::syntax::{Syntax, all, around, children, function_around, is_field};

/// Statements that leave a function or a loop.
const EXITS: [&str; 4] = [
    "break_statement",
    "continue_statement",
    "raise_statement",
    "return_statement",
];

/// Where a file names it.
pub struct Part<'s> {
    pub source: Source<'s>,
    /// The whole expressions, with keys; also `self` in `len(self)`.
    pub mentions: Vec<Node<'s>>,
    /// The first bytes of those by which it is added to, by whatever or by a method, and by which it is taken from.
    adds: Vec<usize>,
    appends: Vec<usize>,
    takes: Vec<usize>,
    /// The keys that go around.
    pub turning: BTreeSet<&'s str>,
}

impl<'s> Search<'_, 's> {
    /// True for the attribute of an object that another function makes than the one whose variable leads to the owner.
    fn is_of_another(&self, syntax: &'s Syntax, attribute: Node<'s>) -> bool {
        let object = attribute.child_by_field_name("object");
        let variable = object.filter(|it| it.kind() == "identifier");
        let function = function_around(attribute);
        let Some((variable, function)) = variable.zip(function) else {
            return false;
        };
        let name = function.child_by_field_name("name");
        let is_made = |it: Node<'_>| {
            let value = bound_by(it).and_then(|(_, value)| value);
            value.is_some_and(|value| value.kind() == "call")
        };
        let mut bindings = syntax.bindings(function, syntax.of(variable)).into_iter();
        bindings.any(is_made) && name.is_some_and(|it| self.owner.function != Some(syntax.of(it)))
    }
}

impl<'s> Part<'s> {
    pub fn new(search: &Search<'_, 's>, source: Source<'s>, grows: Grows) -> Self {
        let syntax = source.syntax;
        let mut part = Self {
            source,
            mentions: Vec::new(),
            adds: Vec::new(),
            appends: Vec::new(),
            takes: Vec::new(),
            turning: BTreeSet::new(),
        };
        // In a file without the name of its class, an attribute may be any object's.
        let is_attribute = matches!(search.owner.named, Named::Attribute { .. });
        if is_attribute && !search.family.0.iter().any(|it| syntax.has_word(it)) {
            return part;
        }
        part.turning = turning(syntax);
        // `append(None)` makes room for one.
        let grows = match grows {
            Grows::Tensors => Grows::Objects,
            _ => grows,
        };
        let (mut names, mut seen) = (Vec::new(), BTreeSet::new());
        for node in all(syntax.root()) {
            if let Ok(Some(name)) = search.mention(source, node) {
                names.extend((!search.is_of_another(syntax, name)).then_some((name, 0)));
            } else if is_attribute
                && syntax.of(node) == "self"
                && length(syntax, node).is_some()
                && search.is_self(syntax, node)
            {
                // `len(self)`
                part.mentions.push(node);
            }
        }
        // The names of it, and how many of its keys are behind each.
        while let Some((name, behind)) = names.pop() {
            let wanted = search.owner.keys.get(behind..).unwrap_or_default();
            if seen.insert(name.start_byte())
                && let Some((whole, keys)) = part.add(name, wanted, grows)
            {
                let others = aliases(syntax, whole, keys < wanted.len());
                names.extend(
                    others
                        .into_iter()
                        .map(|(it, more)| (it, behind + keys + more)),
                );
            }
        }
        for places in [&mut part.adds, &mut part.appends, &mut part.takes] {
            places.sort_unstable();
        }
        part.mentions.sort_by_key(Node::start_byte);
        part
    }

    /// Takes a name of it into account, with the keys that are `wanted`; the whole expression and how many keys it has, or
    /// `None` if they are others.
    fn add(&mut self, name: Node<'s>, wanted: &[&str], grows: Grows) -> Option<(Node<'s>, usize)> {
        let syntax = self.source.syntax;
        let (whole, keys) = whole(syntax, name);
        let mut both = keys.iter().zip(wanted);
        if both.any(|(key, wanted)| same_key(syntax, *key, wanted) == Some(false)) {
            return None;
        }
        let more = keys.len() as isize - wanted.len() as isize;
        let is_pushed = given_to(syntax, whole).is_some_and(|it| it == "heappush");
        if is_pushed || matches!(used(syntax, whole, more, grows), Use::Adds(_)) {
            self.adds.push(whole.start_byte());
            let is_method = method(syntax, whole).is_some();
            self.appends.extend(is_method.then_some(whole.start_byte()));
        }
        if taking(syntax, whole).is_some() {
            self.takes.push(whole.start_byte());
        }
        self.mentions.push(whole);
        Some((whole, keys.len()))
    }

    /// The comparison of its length with a limit, and that limit: where it is added to below, or not any more above.
    pub fn compared(&self, whole: Node<'s>) -> Option<(Node<'s>, Node<'s>)> {
        let syntax = self.source.syntax;
        let length = length(syntax, whole)?;
        let mut lengths = vec![length];
        lengths.extend(assigned_to(syntax, length));
        lengths.into_iter().find_map(|it| self.limited(it))
    }

    /// The comparison of a length, and the limit in it.
    fn limited(&self, length: Node<'s>) -> Option<(Node<'s>, Node<'s>)> {
        let syntax = self.source.syntax;
        let comparison = length.parent();
        let comparison = comparison.filter(|it| it.kind() == "comparison_operator")?;
        let [left, right] = children(comparison)[..] else {
            return None;
        };
        let operator = syntax.text().get(left.end_byte()..right.start_byte());
        let (is_below, limit) = match (operator?.trim(), left == length) {
            ("<" | "<=" | "!=", true) => (true, right),
            (">" | ">=" | "!=", false) => (true, left),
            (">" | ">=" | "==", true) => (false, right),
            ("<" | "<=" | "==", false) => (false, left),
            _ => return None,
        };
        let kinds = ["if_statement", "while_statement", "elif_clause"];
        let statement = around(comparison, &kinds)?;
        let part = |name| statement.child_by_field_name(name);
        let is_condition = part("condition")?
            .byte_range()
            .contains(&comparison.start_byte());
        let body = part("consequence").or_else(|| part("body"))?;
        let function = function_around(statement);
        let all = function.unwrap_or_else(|| syntax.root());
        let last = children(body).pop();
        let ends = last.is_some_and(|it| EXITS.contains(&it.kind()));
        let is_limit = match is_below {
            true => {
                let elsewhere = is_between(&self.appends, all.start_byte(), body.start_byte())
                    || is_between(&self.appends, body.end_byte(), all.end_byte());
                // `if len(items) < limit: continue`, and else one is taken.
                let takes_else =
                    ends && is_between(&self.takes, statement.end_byte(), all.end_byte());
                self.adds_within(body) && !elsewhere || takes_else
            }
            false => {
                is_within(&self.takes, body)
                    || ends && self.adds_between(statement.end_byte(), all.end_byte())
                    || part("alternative").is_some_and(|it| self.adds_within(it))
            }
        };
        (is_condition && is_limit).then_some((comparison, limit))
    }

    /// True if something is added to it in a part of the file.
    pub fn adds_within(&self, part: Node<'s>) -> bool {
        is_within(&self.adds, part)
    }

    fn adds_between(&self, first: usize, end: usize) -> bool {
        is_between(&self.adds, first, end)
    }
}

/// The variables that an expression is assigned to, where they stand for nothing else in their function.
fn assigned_to<'s>(syntax: &'s Syntax, value: Node<'s>) -> Vec<Node<'s>> {
    let assignment = value.parent().filter(|it| it.kind() == "assignment");
    let target = assignment.and_then(|it| it.child_by_field_name("left"));
    let target = target.filter(|it| it.kind() == "identifier" && *it != value);
    let Some((target, function)) = target.zip(function_around(value)) else {
        return Vec::new();
    };
    let name = syntax.of(target);
    match syntax.bindings(function, name)[..] {
        [_] => syntax.variables(function, name),
        _ => Vec::new(),
    }
}

/// Other names of an expression, and how many keys are between: a variable that it is assigned to, what a property gives, and
/// what a loop goes over; its items only if those are meant.
fn aliases<'s>(syntax: &'s Syntax, whole: Node<'s>, has_keys: bool) -> Vec<(Node<'s>, usize)> {
    let Some(parent) = whole.parent() else {
        return Vec::new();
    };
    // `for all in (self.losses, self.outputs)`, `for all in self.logs.values()`
    let (iterated, more) = match (parent.kind(), method(syntax, whole)) {
        ("tuple" | "list", _) => (Some(parent), 0),
        (_, Some("values" | "items")) => (parent.parent(), 1),
        _ => (Some(whole), 1),
    };
    let around = iterated.and_then(|it| Some((it, it.parent()?)));
    let in_loop = around.filter(|(iterated, around)| {
        around.kind() == "for_statement"
            && is_field(*around, "right", *iterated)
            && (more == 0 || has_keys)
    });
    let of_loop = in_loop.and_then(|(_, it)| {
        let target = it.child_by_field_name("left")?;
        let target = children(target).pop().unwrap_or(target);
        Some(syntax.variables(it.child_by_field_name("body")?, syntax.of(target)))
    });
    let of_property = || {
        let function = function_around(parent)?;
        let is_property = decorators(syntax, function).any(|it| it == "@property");
        let name = function.child_by_field_name("name")?;
        let is_it = parent.kind() == "return_statement" && is_property;
        let attributes = all(syntax.root()).into_iter();
        let attributes = attributes.filter(|it| is_called(syntax, *it, syntax.of(name)));
        is_it.then(|| attributes.collect::<Vec<_>>())
    };
    let names = assigned_to(syntax, whole)
        .into_iter()
        .chain(of_property().unwrap_or_default());
    let names = names.map(|it| (it, 0));
    let of_loop = of_loop.unwrap_or_default();
    names
        .chain(of_loop.into_iter().map(|it| (it, more)))
        .collect()
}

/// The name of the function around a node; empty without one.
pub fn name_of_function<'a>(syntax: &'a Syntax, node: Node<'_>) -> &'a str {
    let function = function_around(node);
    let name = function.and_then(|it| it.child_by_field_name("name"));
    name.map_or("", |it| syntax.of(it))
}

/// True if one of some places, in order, is in a part of a file.
fn is_within(places: &[usize], part: Node<'_>) -> bool {
    is_between(places, part.start_byte(), part.end_byte())
}

fn is_between(places: &[usize], first: usize, end: usize) -> bool {
    let next = places.partition_point(|&it| it < first);
    places.get(next).is_some_and(|&it| it < end)
}
