//! The lines of the program that keep what grows within a limit, or empty it: a cache grows until it is full, and a list
//! of outputs until its epoch ends.
//!
//! What grows so is not known to be a leak for as long as it may still be filling. A line that looks like a limit and is
//! none delays a report, no more: so it need not be proven.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use tree_sitter::Node;

use super::container::{holds_nothing, same_key};
use super::held::last_part;
use super::mention::{Grows, Use, is_fresh, is_new_tensor, used, whole};
use super::owner::{FILES, LINES, Named, Owner, Search};
use super::reference::shown;
use super::shrinking::{
    LOOPS, TAKERS, given_to, is_detached, is_in_loop, is_shortened, length, may_vary, method,
    taken, turning,
};
use super::sources::{Program, Source, Sources};
use super::stores::{bound_by, is_constant};
use super::syntax::{
    Syntax, all, around, children, function_around, functions_around, is_field, is_named,
};
use crate::diagnose::case::short;
use crate::model::growth::Growth;
use crate::model::source::SourceLines;

/// Methods in which an object gets its attributes: what they assign is not assigned again.
const INITIAL: [&str; 5] = [
    "__init__",
    "__post_init__",
    "__new__",
    "__setstate__",
    "__init_subclass__",
];
/// Classes that call no method of one that derives from them by a name of its own.
const CALL_NOTHING: [&str; 6] = ["ABC", "Dataset", "Generic", "Module", "Protocol", "object"];
/// Statements that leave a function or a loop.
const EXITS: [&str; 4] = [
    "break_statement",
    "continue_statement",
    "raise_statement",
    "return_statement",
];

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

/// All that the files of a program do with what grows.
struct Limiting<'a, 's> {
    search: &'a Search<'a, 's>,
    grows: Grows,
    parts: Vec<Part<'s>>,
    /// All calls of the files and all functions, by the name of the function.
    calls: OnceCell<ByName<'s>>,
    functions: OnceCell<ByName<'s>>,
}

type ByName<'s> = BTreeMap<&'s str, Vec<(&'s Syntax, Node<'s>)>>;

/// Where a file names it.
struct Part<'s> {
    source: Source<'s>,
    /// The whole expressions, with keys; also `self` in `len(self)`.
    mentions: Vec<Node<'s>>,
    /// The first bytes of those by which it is added to, by whatever or by a method, and by which it is taken from.
    adds: Vec<usize>,
    appends: Vec<usize>,
    takes: Vec<usize>,
    /// The keys that go around.
    turning: BTreeSet<&'s str>,
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
pub fn limiting(
    growth: &Growth,
    beside: &Beside,
    program: &Program,
    sources: &mut Sources,
) -> Option<Limit> {
    let grows = Grows::of(growth)?;
    let numbers = &beside.numbers;
    let by_name = Owner::parse(&growth.owner)
        .and_then(|owner| limiting_of(&owner, grows, numbers, program, sources));
    let class = short(&beside.class);
    if by_name.is_some() || class.is_empty() {
        return by_name;
    }
    let own = Owner {
        named: Named::Object { class },
        keys: Vec::new(),
        path: Vec::new(),
        function: None,
    };
    limiting_of(&own, grows, numbers, program, sources)
}

fn limiting_of(
    owner: &Owner<'_>,
    grows: Grows,
    numbers: &[(String, i64)],
    program: &Program,
    sources: &mut Sources,
) -> Option<Limit> {
    let files = files(owner, sources)?;
    let all = sources.of(&files);
    let search = Search::new(owner, program, &all);
    if search.is_ambiguous() {
        return None;
    }
    let found = Limiting::new(&search, grows)?.found();
    let may_be_derived = search
        .family
        .0
        .iter()
        .any(|it| !CALL_NOTHING.contains(&it.as_str()) && !search.has_class(it));
    let places = found.iter().map(|it| {
        let function = functions_around(it.node).pop();
        let method = function.filter(|_| !may_be_derived);
        let name = method.and_then(|it| it.child_by_field_name("name"));
        let name = name.map(|name| it.source.syntax.of(name).to_owned());
        let shown = shown(it.source.syntax, it.node, it.source.file);
        (shown, it.count(numbers), name)
    });
    let places: Vec<_> = places.collect();
    let (mut lines, mut count) = (Vec::new(), None);
    let mut used = BTreeMap::new();
    for (shown, number, function) in places {
        let is_used = function.is_none_or(|name| {
            let known = used.entry(name.clone());
            *known.or_insert_with(|| is_used(&name, sources))
        });
        if is_used {
            lines.extend(shown);
            count = number.max(count);
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
        let nodes = all(source.syntax.root()).into_iter();
        let mut named = nodes.filter(|it| source.syntax.of(*it) == function);
        named.any(|it| {
            let is_definition = it.parent().is_some_and(|parent| {
                parent.kind() == "function_definition"
                    && is_field(parent, "name", it)
                    && parent
                        .parent()
                        .is_none_or(|it| it.kind() != "decorated_definition")
            });
            matches!(it.kind(), "identifier" | "string_content") && !is_definition
        })
    })
}

impl<'a, 's> Limiting<'a, 's> {
    /// `None` if the owner's name is a common one.
    fn new(search: &'a Search<'a, 's>, grows: Grows) -> Option<Self> {
        let parts = || {
            let sources = search.sources.iter();
            sources.map(|it| Part::new(search, *it, grows)).collect()
        };
        (!search.is_common()).then(|| Self {
            search,
            grows,
            parts: parts(),
            calls: OnceCell::new(),
            functions: OnceCell::new(),
        })
    }

    /// The places that keep it within a limit, or empty it.
    fn found(&self) -> Vec<Found<'s>> {
        let mut found = Vec::new();
        for part in &self.parts {
            let source = part.source;
            found.extend(self.made_anew(part).into_iter().map(|node| Found {
                source,
                node,
                limit: None,
            }));
            for &whole in &part.mentions {
                let compared = part.compared(whole);
                let node = compared.map(|(node, _)| node);
                let node = node.or_else(|| match self.grows {
                    Grows::Length | Grows::Graph => self.begun_anew(part, whole),
                    _ => taken(source.syntax, whole, &part.turning)
                        .or_else(|| self.emptied(part, whole))
                        .or_else(|| self.taken_by_function(source.syntax, whole))
                        .or_else(|| self.begun_anew(part, whole)),
                });
                let node = node.filter(|it| may_vary(source.syntax, *it).is_some());
                found.extend(node.map(|node| Found {
                    source,
                    node,
                    limit: compared.map(|(_, limit)| limit),
                }));
            }
        }
        found
    }

    /// The statements that make the object anew that has the attribute, where its owner is named: `self.meter = Meter()`.
    fn made_anew(&self, part: &Part<'s>) -> Vec<Node<'s>> {
        let (Named::Attribute { class, .. }, syntax) =
            (&self.search.owner.named, part.source.syntax)
        else {
            return Vec::new();
        };
        let nodes = all(syntax.root()).into_iter();
        let calls = nodes.filter(|it| it.kind() == "assignment").filter(|it| {
            let value = it.child_by_field_name("right");
            let function = value.and_then(|it| it.child_by_field_name("function"));
            let target = it.child_by_field_name("left");
            let name = target.map_or("", |it| last_part(syntax.of(it)));
            function.is_some_and(|it| last_part(syntax.of(it)) == *class)
                && self.search.owner.path.contains(&name)
        });
        let again = |it: &Node<'s>| self.is_repeated(syntax, *it).unwrap_or_default();
        calls.filter(again).collect()
    }

    /// Whether something is done again and again by its conditions, by a loop or where its function is called; `None` if
    /// nothing says so.
    fn is_repeated(&self, syntax: &'s Syntax, node: Node<'s>) -> Option<bool> {
        let function = function_around(node);
        let name = name_of_function(syntax, node);
        match may_vary(syntax, node) {
            None => Some(false),
            _ if INITIAL.contains(&name) => Some(false),
            Some(true) => Some(true),
            Some(false) => {
                (is_in_loop(node, function) || self.is_called_in_loop(name)).then_some(true)
            }
        }
    }

    /// What empties it: `items.clear()`.
    fn emptied(&self, part: &Part<'s>, whole: Node<'s>) -> Option<Node<'s>> {
        let is_it = method(part.source.syntax, whole)? == "clear";
        (is_it && self.happens_again(part, whole)).then(|| whole.parent())?
    }

    /// The assignment that lets it begin anew: of something that is empty or a part of what it was, but not of what it has
    /// at first.
    fn begun_anew(&self, part: &Part<'s>, whole: Node<'s>) -> Option<Node<'s>> {
        let syntax = part.source.syntax;
        let (statement, value) = bound_by(whole)?;
        let value = value.filter(|_| statement.kind() == "assignment")?;
        let text = syntax.of(whole);
        let has_itself = all(value).into_iter().any(|it| syntax.of(it) == text);
        if has_itself {
            let is_part = match self.grows {
                Grows::Graph => is_detached(syntax, value) && self.happens_again(part, statement),
                Grows::Length => value.kind() == "subscript",
                _ => is_shortened(syntax, value),
            };
            return is_part.then_some(statement);
        }
        let is_empty = is_constant(Some(value))
            || match self.grows {
                Grows::Length | Grows::Graph => is_new_tensor(syntax, value),
                _ => is_fresh(syntax, value) || holds_nothing(syntax, Some(value)),
            };
        (is_empty && self.happens_again(part, statement)).then_some(statement)
    }

    /// True for what may be done again and again, though not each time that something is added: where an object gets its
    /// attributes, and before a loop that fills it, it begins once.
    fn happens_again(&self, part: &Part<'s>, node: Node<'s>) -> bool {
        let syntax = part.source.syntax;
        if let Some(is_repeated) = self.is_repeated(syntax, node) {
            return is_repeated;
        }
        match (&self.search.owner.named, function_around(node)) {
            (_, None) | (Named::Local { .. }, _) => false,
            // What makes an object may give it its attributes.
            (Named::Attribute { .. }, _) if !self.is_of_self(syntax, node) => false,
            (_, Some(function)) => {
                let has_loop = all(function).iter().any(|it| LOOPS.contains(&it.kind()));
                let fills = has_loop || part.adds_within(function);
                !fills && !self.is_called_initially(name_of_function(syntax, node))
            }
        }
    }

    /// True for a statement about an attribute of `self`.
    fn is_of_self(&self, syntax: &'s Syntax, node: Node<'s>) -> bool {
        let first = all(node).into_iter().find(|it| it.kind() == "identifier");
        first.is_some_and(|it| self.search.is_self(syntax, it))
    }

    /// The calls of a function.
    fn calls(&self, function: &str) -> &[(&'s Syntax, Node<'s>)] {
        let calls = self.calls.get_or_init(|| self.by_name("call", "function"));
        calls.get(function).map_or(&[], |it| it)
    }

    /// The nodes of a kind, by the last part of the name in a field.
    fn by_name(&self, kind: &str, field: &str) -> ByName<'s> {
        let mut found = ByName::new();
        for source in self.search.sources {
            let nodes = all(source.syntax.root()).into_iter();
            for node in nodes.filter(|it| it.kind() == kind) {
                let name = node.child_by_field_name(field);
                let name = name.map_or("", |it| last_part(source.syntax.of(it)));
                found.entry(name).or_default().push((source.syntax, node));
            }
        }
        found
    }

    fn is_called_in_loop(&self, function: &str) -> bool {
        let mut calls = self.calls(function).iter();
        calls.any(|(_, call)| is_in_loop(*call, function_around(*call)))
    }

    /// True if all calls of a function are where an object gets its attributes.
    fn is_called_initially(&self, function: &str) -> bool {
        let calls = self.calls(function);
        !calls.is_empty()
            && calls.iter().all(|(syntax, call)| {
                let around = function_around(*call);
                around.is_some_and(|it| INITIAL.iter().any(|name| is_named(syntax, it, name)))
            })
    }

    /// The call of a function of the program's that takes from what it is given first.
    fn taken_by_function(&self, syntax: &'s Syntax, whole: Node<'s>) -> Option<Node<'s>> {
        let name = given_to(syntax, whole)?;
        let functions = || self.by_name("function_definition", "name");
        let named = self.functions.get_or_init(functions).get(name)?;
        let takes = named.iter().any(|(syntax, function)| {
            let field = |name| function.child_by_field_name(name);
            let first = field("parameters").and_then(|it| children(it).first().copied());
            let (Some(first), Some(body)) = (first, field("body")) else {
                return false;
            };
            let mut uses = syntax.variables(body, syntax.of(first)).into_iter();
            let nothing = BTreeSet::new();
            uses.any(|it| {
                taken(syntax, it, &nothing).is_some() || method(syntax, it) == Some("clear")
            })
        });
        takes.then_some(whole)
    }
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
    fn new(search: &Search<'_, 's>, source: Source<'s>, grows: Grows) -> Self {
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
        for node in all(syntax.root()) {
            if let Ok(Some(name)) = search.mention(source, node) {
                let (whole, keys) = whole(syntax, name);
                let mut both = keys.iter().zip(&search.owner.keys);
                let is_other_key =
                    both.any(|(key, wanted)| same_key(syntax, *key, wanted) == Some(false));
                if is_other_key || search.is_of_another(syntax, name) {
                    continue;
                }
                let more = keys.len() as isize - search.owner.keys.len() as isize;
                let is_pushed = given_to(syntax, whole).is_some_and(|it| it == "heappush");
                if is_pushed || matches!(used(syntax, whole, more, grows), Use::Adds(_)) {
                    part.adds.push(whole.start_byte());
                    let is_method = method(syntax, whole).is_some();
                    part.appends.extend(is_method.then_some(whole.start_byte()));
                }
                if method(syntax, whole).is_some_and(|it| TAKERS.contains(&it)) {
                    part.takes.push(whole.start_byte());
                }
                part.mentions.push(whole);
            } else if is_attribute
                && syntax.of(node) == "self"
                && length(syntax, node).is_some()
                && search.is_self(syntax, node)
            {
                // `len(self)`
                part.mentions.push(node);
            }
        }
        part
    }

    /// The comparison of its length with a limit, and that limit: where it is added to below, or not any more above.
    fn compared(&self, whole: Node<'s>) -> Option<(Node<'s>, Node<'s>)> {
        let syntax = self.source.syntax;
        let length = length(syntax, whole)?;
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
        let is_limit = match is_below {
            true => {
                let function = function_around(statement);
                let all = function.unwrap_or_else(|| syntax.root());
                let elsewhere = is_between(&self.appends, all.start_byte(), body.start_byte())
                    || is_between(&self.appends, body.end_byte(), all.end_byte());
                self.adds_within(body) && !elsewhere
            }
            false => {
                let last = children(body).pop();
                let ends = last.is_some_and(|it| EXITS.contains(&it.kind()));
                let function = function_around(statement);
                let rest = function.unwrap_or_else(|| syntax.root());
                is_within(&self.takes, body)
                    || ends && self.adds_between(statement.end_byte(), rest.end_byte())
                    || part("alternative").is_some_and(|it| self.adds_within(it))
            }
        };
        (is_condition && is_limit).then_some((comparison, limit))
    }

    /// True if something is added to it in a part of the file.
    fn adds_within(&self, part: Node<'s>) -> bool {
        is_within(&self.adds, part)
    }

    fn adds_between(&self, first: usize, end: usize) -> bool {
        is_between(&self.adds, first, end)
    }
}

/// The name of the function around a node; empty without one.
fn name_of_function<'a>(syntax: &'a Syntax, node: Node<'_>) -> &'a str {
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
