//! The lines of the program that keep what grows within a limit, or empty it: a cache grows until it is full, and a list
//! of outputs until its epoch ends.
//!
//! What grows so is not known to be a leak for as long as it may still be filling. A line that looks like a limit and is
//! none delays a report, no more: so it need not be proven.

use tree_sitter::Node;

use super::container::{holds_nothing, key_of, same_key};
use super::held::last_part;
use super::mention::{Grows, Use, is_fresh, is_new_tensor, used, whole};
use super::owner::{Named, Owner, Search};
use super::reference::shown;
use super::sources::{Program, Source, Sources};
use super::stores::{bound_by, is_constant};
use super::syntax::{Syntax, all, around, children, functions_around, is_field, is_named, lines};
use crate::diagnose::case::short;
use crate::model::growth::Growth;
use crate::model::source::SourceLines;

/// So many lines are named at most.
const LINES: usize = 3;
/// No more files than these are read for one name: a step of the program waits meanwhile.
const FILES: usize = 12;
/// Methods that take one item or some, for whatever reason.
const TAKERS: [&str; 6] = [
    "discard",
    "pop",
    "popitem",
    "popleft",
    "remove",
    "difference_update",
];
/// Functions of `heapq` that put one in the place of another.
const REPLACING: [&str; 2] = ["heappushpop", "heapreplace"];
/// Methods in which an object gets its attributes: what they assign is not assigned again.
const INITIAL: [&str; 5] = [
    "__init__",
    "__post_init__",
    "__new__",
    "__setstate__",
    "__init_subclass__",
];
/// Statements that leave a function or a loop.
const EXITS: [&str; 4] = [
    "break_statement",
    "continue_statement",
    "raise_statement",
    "return_statement",
];
const LOOPS: [&str; 2] = ["for_statement", "while_statement"];

/// What keeps something within a limit.
#[derive(Debug, Default)]
pub struct Limit {
    pub lines: Vec<SourceLines>,
    /// How many it may become, if that is known.
    pub count: Option<u64>,
}

/// A place that takes from the owner, or that compares its length.
struct Found<'s> {
    source: Source<'s>,
    node: Node<'s>,
    /// What it is compared with.
    limit: Option<Node<'s>>,
}

/// What the program has beside a container that grows.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    /// The attributes that are numbers of the objects that have it.
    pub numbers: Vec<(String, i64)>,
    /// Its class, if that is the program's.
    pub class: String,
}

/// What keeps something that grows within a limit, or empties it; `None` if nothing is found that does.
pub fn limiting(growth: &Growth, beside: &Beside, program: &Program) -> Option<Limit> {
    let grows = Grows::of(growth)?;
    let numbers = &beside.numbers;
    let by_name = || limiting_of(&Owner::parse(&growth.owner)?, grows, numbers, program);
    let own = short(&beside.class);
    let by_class = || {
        let own = Owner {
            named: Named::Object { class: own },
            keys: Vec::new(),
        };
        limiting_of(&own, grows, numbers, program)
    };
    by_name().or_else(|| (!own.is_empty()).then(by_class)?)
}

fn limiting_of(
    owner: &Owner<'_>,
    grows: Grows,
    numbers: &[(String, i64)],
    program: &Program,
) -> Option<Limit> {
    let mut sources = Sources::new(program);
    let files = files(owner, &mut sources)?;
    let all = sources.of(&files);
    let search = Search::new(owner, program, &all);
    let found = search.limiting(grows);
    let may_be_derived = search
        .family
        .0
        .iter()
        .any(|it| it != "object" && !search.has_class(it));
    let counts = found.iter().filter_map(|it| it.count(numbers));
    let count = counts.max();
    let places = found.iter().map(|it| {
        let function = functions_around(it.node).pop();
        let method = function.filter(|_| !may_be_derived);
        let name = method.and_then(|it| it.child_by_field_name("name"));
        let name = name.map(|name| it.source.syntax.of(name).to_owned());
        (shown(it.source.syntax, it.node, it.source.file), name)
    });
    let places: Vec<(Option<SourceLines>, Option<String>)> = places.collect();
    let mut lines = Vec::new();
    for (shown, function) in places {
        if function.is_none_or(|it| is_used(&it, &mut sources)) {
            lines.extend(shown);
        }
    }
    lines.dedup_by_key(|it| (it.file.clone(), it.marked));
    lines.truncate(LINES);
    (!lines.is_empty()).then_some(Limit { lines, count })
}

/// The files that have the owner's name; those that have its class too if others are many.
fn files(owner: &Owner<'_>, sources: &mut Sources) -> Option<Vec<String>> {
    let mut files = match (sources.load_few_having(owner.name(), FILES), &owner.named) {
        (Some(files), _) => files,
        (None, Named::Attribute { class, name }) => sources.load_all_having(&[class, name])?,
        (None, _) => return None,
    };
    if let Named::Local { function, .. } = owner.named {
        files.extend(sources.load_few_having(function, FILES).unwrap_or_default());
    }
    files.sort_unstable();
    files.dedup();
    Some(files)
}

/// True unless no file of the program has the name of a function but where it is defined.
fn is_used(function: &str, sources: &mut Sources) -> bool {
    let is_special = function.starts_with("__") && function.ends_with("__");
    let Some(files) = sources
        .load_few_having(function, FILES)
        .filter(|_| !is_special)
    else {
        return true;
    };
    sources.of(&files).iter().any(|source| {
        all(source.syntax.root()).into_iter().any(|it| {
            let is_definition = it.parent().is_some_and(|parent| {
                parent.kind() == "function_definition"
                    && is_field(parent, "name", it)
                    && parent
                        .parent()
                        .is_none_or(|it| it.kind() != "decorated_definition")
            });
            matches!(it.kind(), "identifier" | "string_content")
                && source.syntax.of(it) == function
                && !is_definition
        })
    })
}

impl<'s> Search<'_, 's> {
    /// The places that keep it within a limit, or empty it.
    fn limiting(&self, grows: Grows) -> Vec<Found<'s>> {
        let mut found = Vec::new();
        for &source in self.sources {
            for node in all(source.syntax.root()) {
                let whole = match self.mention(source, node) {
                    Ok(Some(name)) => self.expression(source.syntax, name).map(|it| it.0),
                    // `len(self)`
                    _ if self.is_self_with_length(source.syntax, node) => Some(node),
                    _ => None,
                };
                let Some(whole) = whole.filter(|it| self.may_be_its(source.syntax, *it)) else {
                    continue;
                };
                let compared = self.compared(source.syntax, whole, grows);
                let node = compared.map(|(node, _)| node);
                let node = node.or_else(|| match grows {
                    Grows::Length | Grows::Graph => self.begun_anew(source.syntax, whole, grows),
                    _ => taken(source.syntax, whole)
                        .or_else(|| self.emptied(source.syntax, whole, grows))
                        .or_else(|| self.taken_by_function(source.syntax, whole))
                        .or_else(|| self.begun_anew(source.syntax, whole, grows)),
                });
                found.extend(node.map(|node| Found {
                    source,
                    node,
                    limit: compared.map(|(_, limit)| limit),
                }));
            }
        }
        found
    }

    /// The whole expression with keys that begins at a name, if it may be the owner or what that is in, and how many more
    /// keys it has.
    fn expression(&self, syntax: &Syntax, name: Node<'s>) -> Option<(Node<'s>, isize)> {
        let (whole, keys) = whole(syntax, name);
        let mut both = keys.iter().zip(&self.owner.keys);
        let is_another = both.any(|(key, wanted)| same_key(syntax, *key, wanted) == Some(false));
        let more = keys.len() as isize - self.owner.keys.len() as isize;
        (!is_another).then_some((whole, more))
    }

    /// False for the attribute of another object in a file that does not have the name of the owner's class.
    fn may_be_its(&self, syntax: &'s Syntax, whole: Node<'s>) -> bool {
        if !matches!(self.owner.named, Named::Attribute { .. }) || self.is_self(syntax, whole) {
            return true;
        }
        let first = all(whole).into_iter().find(|it| it.kind() == "identifier");
        first.is_some_and(|it| self.is_self(syntax, it))
            || self.family.0.iter().any(|it| syntax.has_word(it))
    }

    /// True for `self` in `len(self)` where the owner is an attribute of it.
    fn is_self_with_length(&self, syntax: &'s Syntax, node: Node<'s>) -> bool {
        matches!(self.owner.named, Named::Attribute { .. })
            && length(syntax, node).is_some()
            && self.is_self(syntax, node)
    }

    /// The comparison of its length with a limit, and that limit: where it is added to below, or not any more above.
    fn compared(
        &self,
        syntax: &'s Syntax,
        whole: Node<'s>,
        grows: Grows,
    ) -> Option<(Node<'s>, Node<'s>)> {
        let length = length(syntax, whole)?;
        let comparison = length
            .parent()
            .filter(|it| it.kind() == "comparison_operator")?;
        let [left, right] = children(comparison)[..] else {
            return None;
        };
        let operator = syntax
            .text()
            .get(left.end_byte()..right.start_byte())?
            .trim();
        let (is_below, limit) = match (operator, left == length) {
            ("<" | "<=" | "!=", true) => (true, right),
            (">" | ">=" | "!=", false) => (true, left),
            (">" | ">=" | "==", true) => (false, right),
            ("<" | "<=" | "==", false) => (false, left),
            _ => return None,
        };
        let statement = around(
            comparison,
            &["if_statement", "while_statement", "elif_clause"],
        )?;
        let condition = statement.child_by_field_name("condition")?;
        let is_condition = condition.byte_range().contains(&comparison.start_byte());
        let body = statement
            .child_by_field_name("consequence")
            .or_else(|| statement.child_by_field_name("body"))?;
        let function = functions_around(statement).into_iter().next();
        let rest = function.unwrap_or_else(|| syntax.root());
        let is_limit = match is_below {
            true => self.adds_within(syntax, body, grows),
            false => {
                let ends = children(body)
                    .last()
                    .is_some_and(|it| EXITS.contains(&it.kind()));
                let takes = all(body).into_iter().any(|it| self.takes(syntax, it));
                let alternative = statement.child_by_field_name("alternative");
                takes
                    || ends && self.adds_within(syntax, rest, grows)
                    || alternative.is_some_and(|it| self.adds_within(syntax, it, grows))
            }
        };
        (is_condition && is_limit).then_some((comparison, limit))
    }

    /// The owner, if a node names it.
    fn named(&self, syntax: &'s Syntax, node: Node<'s>) -> Option<(Node<'s>, isize)> {
        let source = self
            .sources
            .iter()
            .find(|it| std::ptr::eq(it.syntax, syntax))?;
        let name = self.mention(*source, node).ok().flatten()?;
        self.expression(syntax, name)
    }

    /// True if something is added to it in a part of a file.
    fn adds_within(&self, syntax: &'s Syntax, part: Node<'s>, grows: Grows) -> bool {
        // `append(None)` makes room for one.
        let grows = match grows {
            Grows::Tensors => Grows::Objects,
            _ => grows,
        };
        all(part).into_iter().any(|it| {
            let whole = self.named(syntax, it);
            whole.is_some_and(|(whole, more)| {
                let is_pushed = given_to(syntax, whole).is_some_and(|it| it == "heappush");
                is_pushed || matches!(used(syntax, whole, more, grows), Use::Adds(_))
            })
        })
    }

    fn takes(&self, syntax: &'s Syntax, node: Node<'s>) -> bool {
        let whole = self.named(syntax, node);
        whole.is_some_and(|(whole, _)| method(syntax, whole).is_some_and(|it| TAKERS.contains(&it)))
    }

    /// What empties it: `items.clear()`.
    fn emptied(&self, syntax: &'s Syntax, whole: Node<'s>, grows: Grows) -> Option<Node<'s>> {
        let is_it = method(syntax, whole)? == "clear";
        (is_it && self.happens_again(syntax, whole, grows)).then(|| whole.parent())?
    }

    /// The assignment that lets it begin anew: of something that is empty or a part of what it was, but not of what it has
    /// at first.
    fn begun_anew(&self, syntax: &'s Syntax, whole: Node<'s>, grows: Grows) -> Option<Node<'s>> {
        let (statement, value) = bound_by(whole)?;
        let value = value.filter(|_| statement.kind() == "assignment")?;
        let text = syntax.of(whole);
        let has_itself = all(value).into_iter().any(|it| syntax.of(it) == text);
        if has_itself {
            let is_part = match grows {
                Grows::Graph => {
                    is_detached(syntax, value) && self.happens_again(syntax, statement, grows)
                }
                Grows::Length => value.kind() == "subscript",
                _ => matches!(
                    value.kind(),
                    "subscript"
                        | "list_comprehension"
                        | "dictionary_comprehension"
                        | "set_comprehension"
                ),
            };
            return (is_part && may_vary(syntax, statement).is_some()).then_some(statement);
        }
        let is_empty = is_constant(Some(value))
            || match grows {
                Grows::Length | Grows::Graph => is_new_tensor(syntax, value),
                _ => is_fresh(syntax, value) || holds_nothing(syntax, Some(value)),
            };
        (is_empty && self.happens_again(syntax, statement, grows)).then_some(statement)
    }

    /// True for what may be done again and again, though not each time that something is added: where an object gets its
    /// attributes, and before a loop that fills it, it begins once.
    fn happens_again(&self, syntax: &'s Syntax, node: Node<'s>, grows: Grows) -> bool {
        let function = functions_around(node).into_iter().next();
        let name = function.and_then(|it| it.child_by_field_name("name"));
        let name = name.map_or("", |it| syntax.of(it));
        match (may_vary(syntax, node), &self.owner.named, function) {
            (None, _, _) => false,
            _ if INITIAL.contains(&name) => false,
            (Some(true), _, _) => true,
            _ if is_in_loop(node, function) => true,
            (_, Named::Local { .. }, Some(_)) => self.is_called_in_loop(name),
            (_, _, Some(function)) => {
                let has_loop = all(function).iter().any(|it| LOOPS.contains(&it.kind()));
                let fills = has_loop || self.adds_within(syntax, function, grows);
                !fills && !self.is_called_initially(name) || self.is_called_in_loop(name)
            }
            (_, _, None) => false,
        }
    }

    /// The calls of a function.
    fn calls(&self, function: &str) -> Vec<(&'s Syntax, Node<'s>)> {
        let mut found = Vec::new();
        for source in self.sources {
            let nodes = all(source.syntax.root()).into_iter();
            found.extend(nodes.filter(|it| it.kind() == "call").filter_map(|call| {
                let name = call.child_by_field_name("function")?;
                let is_it = last_part(source.syntax.of(name)) == function;
                is_it.then_some((source.syntax, call))
            }));
        }
        found
    }

    fn is_called_in_loop(&self, function: &str) -> bool {
        let mut calls = self.calls(function).into_iter();
        calls.any(|(_, call)| is_in_loop(call, functions_around(call).into_iter().next()))
    }

    /// The call of a function of the program's that takes from what it is given first.
    fn taken_by_function(&self, syntax: &'s Syntax, whole: Node<'s>) -> Option<Node<'s>> {
        let name = given_to(syntax, whole)?;
        self.sources.iter().find_map(|source| {
            let syntax = source.syntax;
            let mut nodes = all(syntax.root()).into_iter();
            let function = nodes
                .find(|it| it.kind() == "function_definition" && is_named(syntax, *it, name))?;
            let parameters = function.child_by_field_name("parameters")?;
            let first = syntax.of(*children(parameters).first()?);
            let body = function.child_by_field_name("body")?;
            let mut uses = syntax.variables(body, first).into_iter();
            uses.any(|it| taken(syntax, it).is_some()).then_some(whole)
        })
    }

    /// True if all calls of a function are where an object gets its attributes.
    fn is_called_initially(&self, function: &str) -> bool {
        let calls = self.calls(function);
        !calls.is_empty()
            && calls.into_iter().all(|(syntax, call)| {
                let around = functions_around(call).into_iter().next();
                around.is_some_and(|it| INITIAL.iter().any(|name| is_named(syntax, it, name)))
            })
    }
}

impl Found<'_> {
    /// The number that the length is compared with, if it is known.
    fn count(&self, numbers: &[(String, i64)]) -> Option<u64> {
        let (syntax, limit) = (self.source.syntax, self.limit?);
        let number = match limit.kind() {
            "integer" => syntax.of(limit).replace('_', "").parse().ok(),
            "attribute" => {
                let name = last_part(syntax.of(limit));
                let known = numbers.iter().find(|(known, _)| known == name);
                known.map(|(_, number)| *number)
            }
            "identifier" => {
                let bindings = syntax.bindings(syntax.root(), syntax.of(limit));
                let [binding] = bindings[..] else { return None };
                let (_, value) = bound_by(binding)?;
                let value = value.filter(|it| it.kind() == "integer")?;
                syntax.of(value).replace('_', "").parse().ok()
            }
            _ => None,
        };
        number.and_then(|it: i64| u64::try_from(it).ok())
    }
}

/// `len(x)`, of an expression.
fn length<'s>(syntax: &Syntax, whole: Node<'s>) -> Option<Node<'s>> {
    let call = whole.parent()?.parent().filter(|it| it.kind() == "call")?;
    (given_to(syntax, whole)? == "len").then_some(call)
}

/// The name of the function whose first argument an expression is.
fn given_to<'a>(syntax: &'a Syntax, whole: Node<'_>) -> Option<&'a str> {
    let list = whole.parent().filter(|it| it.kind() == "argument_list")?;
    let is_first = children(list).first() == Some(&whole);
    let call = list.parent().filter(|it| it.kind() == "call" && is_first)?;
    Some(last_part(syntax.of(call.child_by_field_name("function")?)))
}

/// The name of the method of an expression that is read.
fn method<'a>(syntax: &'a Syntax, whole: Node<'_>) -> Option<&'a str> {
    let attribute = whole.parent().filter(|it| it.kind() == "attribute")?;
    let name = attribute.child_by_field_name("attribute")?;
    is_field(attribute, "object", whole).then(|| syntax.of(name))
}

/// What takes from a container, where that is a limit or empties it.
fn taken<'s>(syntax: &'s Syntax, whole: Node<'s>) -> Option<Node<'s>> {
    let parent = whole.parent()?;
    match method(syntax, whole) {
        Some(name) if TAKERS.contains(&name) && is_for_limit(syntax, parent) => {
            return Some(parent);
        }
        _ => {}
    }
    if given_to(syntax, whole).is_some_and(|it| REPLACING.contains(&it)) {
        return Some(whole);
    }
    // `del items[:-limit]`
    let is_sliced = parent.kind() == "subscript"
        && is_field(parent, "value", whole)
        && children(parent).iter().any(|it| it.kind() == "slice");
    let deleted = if is_sliced { parent } else { whole };
    let delete = deleted.parent();
    let delete = delete.map(|it| match it.kind() {
        "expression_list" => it.parent().unwrap_or(it),
        _ => it,
    });
    if let Some(delete) = delete.filter(|it| it.kind() == "delete_statement") {
        return (is_sliced || is_for_limit(syntax, delete)).then_some(delete);
    }
    // `items[number % limit] = item`
    let is_assigned = bound_by(whole).is_some() && whole.kind() == "subscript";
    let key = key_of(whole).filter(|_| is_assigned)?;
    let is_in_turn = all(key).into_iter().any(|it| syntax.of(it) == "%");
    is_in_turn.then_some(whole)
}

/// True for what is done only if something is larger than something else, or to a part of the items.
fn is_for_limit(syntax: &Syntax, node: Node<'_>) -> bool {
    let function = functions_around(node).into_iter().next();
    let mut at = node;
    while let Some(next) = around(
        at,
        &[
            "if_statement",
            "elif_clause",
            "while_statement",
            "for_statement",
        ],
    ) {
        if functions_around(next).into_iter().next() != function {
            return false;
        }
        let condition = match next.kind() {
            "for_statement" => next.child_by_field_name("right"),
            _ => next.child_by_field_name("condition"),
        };
        let compares = condition.is_some_and(|it| {
            all(it).into_iter().any(|it| match it.kind() {
                "<" | ">" | "<=" | ">=" => {
                    // Whether there is any says nothing of how many there may be.
                    let zero = it.next_sibling().is_some_and(|it| syntax.of(it) == "0");
                    !zero || next.kind() == "while_statement"
                }
                "slice" => next.kind() == "for_statement",
                _ => false,
            })
        });
        if compares {
            return true;
        }
        at = next;
    }
    false
}

fn is_detached(syntax: &Syntax, value: Node<'_>) -> bool {
    all(value).into_iter().any(|it| {
        let name = it.child_by_field_name("attribute");
        name.is_some_and(|it| matches!(syntax.of(it), "data" | "detach" | "detach_"))
    })
}

/// True for what a loop of the same function does.
fn is_in_loop(node: Node<'_>, function: Option<Node<'_>>) -> bool {
    let found = around(node, &LOOPS);
    found.is_some_and(|it| function.is_none_or(|function| lines(it).0 >= lines(function).0))
}

/// Whether the conditions of its function under which something is done may be true and false by turns, if there are any;
/// `None` if one is the same all the time, such as a parameter, as far as one can see.
fn may_vary(syntax: &Syntax, node: Node<'_>) -> Option<bool> {
    let function = functions_around(node).into_iter().next();
    let (mut at, mut is_conditional) = (node, false);
    while let Some(next) = around(at, &["if_statement", "elif_clause"])
        && functions_around(next).into_iter().next() == function
    {
        let condition = next.child_by_field_name("condition")?;
        let varies = all(condition).into_iter().any(|it| match it.kind() {
            "<" | ">" | "<=" | ">=" | "==" | "!=" | "call" => true,
            "identifier" => function.is_some_and(|function| {
                let name = syntax.of(it);
                let mut bindings = syntax.bindings(function, name).into_iter();
                let is_bound = |it: Node<'_>| around(it, &["parameters"]).is_none();
                syntax.is_variable(it) && bindings.any(is_bound)
            }),
            _ => false,
        });
        if !varies {
            return None;
        }
        is_conditional = true;
        at = next;
    }
    Some(is_conditional)
}
