//! The lines of the program that keep what grows within a limit, or empty it: a cache grows until it is full, and a list
//! of outputs until its epoch ends.
//!
//! What grows so is not known to be a leak for as long as it may still be filling. A line that looks like a limit and is
//! none delays a report, no more: so it need not be proven.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use tree_sitter::Node;

use super::anew;
use super::container::{holds_nothing, key_of};
use super::held::last_part;
use super::keys::{cached_by_index, is_never_again, is_only_if_missing, is_rounded, keys_of};
use super::mention::{Grows, is_fresh, is_new_tensor};
use super::owner::{FILES, LINES, Named, Owner, Search};
use super::part::{Part, name_of_function};
use super::reference::shown;
use super::shrinking::{
    INITIAL, LOOPS, alternatives, given_to, is_detached, is_for_limit, is_in_loop, is_made_of,
    is_narrowed, is_shortened, is_sliced, may_vary, method, operands, taken, taking,
};
use super::sources::{Program, Source, Sources};
use super::stores::{bound_by, is_constant};
use super::syntax::{
    Syntax, all, around, children, function_around, functions_around, is_field, is_named,
};
use crate::diagnose::case::short;
use crate::model::growth::Growth;
use crate::model::source::SourceLines;

/// Classes that call no method of one that derives from them by a name of its own.
const CALL_NOTHING: [&str; 6] = ["ABC", "Dataset", "Generic", "Module", "Protocol", "object"];
/// So many calls and functions of one name are looked at, at most.
const MANY: usize = 16;
/// By so many functions, each of which calls the next, something may be done again.
const CALLS: usize = 2;
/// A dictionary with fewer entries may have one for each environment, phase or head.
const FEW: u64 = 16;

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
    /// It grows by its entries, not by what is in each.
    by_entries: bool,
    parts: Vec<Part<'s>>,
    /// All calls of the files and all functions, by the name of the function.
    calls: OnceCell<ByName<'s>>,
    functions: OnceCell<ByName<'s>>,
}

type ByName<'s> = BTreeMap<&'s str, Vec<(&'s Syntax, Node<'s>)>>;

/// What the program has beside a container that grows.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    /// The attributes that are numbers of the objects that have it; None and False are 0.
    pub numbers: Vec<(String, i64)>,
    /// Its class, if that is the program's.
    pub class: String,
    /// It is a list or a deque, which a deque with a limit can take the place of.
    pub is_list: bool,
    /// The number of its entries, if it is a dictionary.
    pub entries: u64,
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
    // What so few tensors are behind each entry of is not filled through its entries, but by them.
    let by_entries = beside.entries >= FEW && 8 * beside.entries >= growth.tensors;
    let by_name = Owner::parse(&growth.owner)
        .and_then(|owner| limiting_of(&owner, grows, by_entries, numbers, program, sources));
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
    limiting_of(&own, grows, by_entries, numbers, program, sources)
}

fn limiting_of(
    owner: &Owner<'_>,
    grows: Grows,
    by_entries: bool,
    numbers: &[(String, i64)],
    program: &Program,
    sources: &mut Sources,
) -> Option<Limit> {
    let files = owner.files(sources)?;
    let all = sources.of(&files);
    let search = Search::new(owner, program, &all);
    if search.is_ambiguous() {
        return None;
    }
    let limiting = Limiting::new(&search, grows, by_entries)?;
    let mut found = limiting.found();
    let mut others = BTreeMap::new();
    found.retain(|it| {
        let name = name_of_function(it.source.syntax, it.node);
        let is_others = others
            .entry(name)
            .or_insert_with(|| limiting.is_of_others(name));
        !*is_others && !it.is_off(numbers)
    });
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
    fn new(search: &'a Search<'a, 's>, grows: Grows, by_entries: bool) -> Option<Self> {
        let parts = || {
            let sources = search.sources.iter();
            sources.map(|it| Part::new(search, *it, grows)).collect()
        };
        (!search.is_common()).then(|| Self {
            search,
            grows,
            by_entries,
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
            let begun = anew::begun(source.syntax, self.search).into_iter();
            let begun = begun.filter(|it| {
                !self.is_called_initially(name_of_function(source.syntax, *it))
                    && self.is_repeated_by_calls(source.syntax, *it, CALLS)
            });
            found.extend(begun.map(|node| Found {
                source,
                node,
                limit: None,
            }));
            for &whole in &part.mentions {
                let compared = part.compared(whole);
                let node = compared.map(|it| it.0).or_else(|| match self.grows {
                    Grows::Length | Grows::Graph => self.begun_anew(part, whole),
                    _ => taken(source.syntax, whole, &part.turning)
                        .or_else(|| self.taken_when_asked(part, whole))
                        .or_else(|| self.emptied(part, whole))
                        .or_else(|| self.taken_by_function(source.syntax, whole))
                        .or_else(|| self.begun_anew(part, whole)),
                });
                let node = node.filter(|it| may_vary(source.syntax, *it).is_some());
                let node = node.filter(|it| !self.search.is_overridden(source.syntax, *it));
                let node = node
                    .or_else(|| cached_by_index(source.syntax, whole))
                    .or_else(|| self.cached_by_rounded(source.syntax, whole));
                found.extend(node.map(|node| Found {
                    source,
                    node,
                    limit: compared.map(|(_, limit)| limit),
                }));
            }
        }
        found
    }

    /// The assignment of an entry by a rounded key: of such keys there are not many.
    fn cached_by_rounded(&self, syntax: &'s Syntax, whole: Node<'s>) -> Option<Node<'s>> {
        let (assignment, value) = bound_by(whole)?;
        let (key, container) = (key_of(whole)?, whole.child_by_field_name("value")?);
        let is_filled_later = holds_nothing(syntax, value)
            || value.is_some_and(|it| is_made_of(syntax, it, syntax.of(container)));
        let functions = |name: &str| self.functions(name).to_vec();
        (!is_filled_later && is_rounded(syntax, key, &functions)).then_some(assignment)
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

    /// True for what is done again and again itself, or in a function that is called so, by so many more functions at
    /// most; none of them is a `main`.
    fn is_repeated_by_calls(&self, syntax: &'s Syntax, node: Node<'s>, more: usize) -> bool {
        self.is_repeated(syntax, node).unwrap_or_else(|| {
            let calls = self.calls(name_of_function(syntax, node)).iter();
            more > 0
                && calls.take(MANY).any(|&(syntax, call)| {
                    !self.is_called_once(name_of_function(syntax, call))
                        && self.is_repeated_by_calls(syntax, call, more - 1)
                })
        })
    }

    /// True for a function that the program calls as it begins, and not again.
    fn is_called_once(&self, function: &str) -> bool {
        let calls = self.calls(function);
        let is_once = |call| function_around(call).is_none() && !is_in_loop(call, None);
        !calls.is_empty() && calls.iter().all(|&(_, call)| is_once(call))
    }

    /// What empties it: `items.clear()`, `items *= 0`.
    fn emptied(&self, part: &Part<'s>, whole: Node<'s>) -> Option<Node<'s>> {
        let (syntax, parent) = (part.source.syntax, whole.parent()?);
        let is_zero = |it: Node<'_>| syntax.of(it) == "0";
        let is_it = match parent.kind() {
            "augmented_assignment" => parent.child_by_field_name("right").is_some_and(is_zero),
            _ => method(syntax, whole) == Some("clear"),
        };
        (is_it && self.happens_again(part, whole)).then_some(parent)
    }

    /// What takes from it where a function says that there are too many, or in a function that is called then:
    /// `if self.is_full(): self.evict()`.
    fn taken_when_asked(&self, part: &Part<'s>, whole: Node<'s>) -> Option<Node<'s>> {
        let (syntax, text) = (part.source.syntax, part.source.syntax.of(whole));
        let taking = taking(syntax, whole)?;
        let calls = self.calls(name_of_function(syntax, taking)).iter();
        let mut calls = calls.take(MANY);
        let is_limit = self.is_asked(syntax, taking)
            || calls.any(|(syntax, call)| {
                is_for_limit(syntax, *call, text) || self.is_asked(syntax, *call)
            });
        is_limit.then_some(taking)
    }

    /// True for what is done only if a function of the program's says so that compares something.
    fn is_asked(&self, syntax: &'s Syntax, node: Node<'s>) -> bool {
        let condition = around(node, &["if_statement", "while_statement"])
            .filter(|it| function_around(*it) == function_around(node))
            .and_then(|it| it.child_by_field_name("condition"));
        let called = condition.into_iter().flat_map(all).filter_map(|it| {
            let function = it.child_by_field_name("function")?;
            Some(last_part(syntax.of(function)))
        });
        let mut functions = called.flat_map(|name| self.functions(name)).take(MANY);
        functions.any(|(_, function)| {
            let mut nodes = all(*function).into_iter();
            nodes.any(|it| matches!(it.kind(), "<" | ">" | "<=" | ">="))
        })
    }

    /// The assignment that lets it begin anew: of something that is empty or a part of what it was, but not of what it has
    /// at first.
    fn begun_anew(&self, part: &Part<'s>, whole: Node<'s>) -> Option<Node<'s>> {
        let syntax = part.source.syntax;
        // `items[:] = items[-100:]`
        let slice = || whole.parent().filter(|it| is_sliced(*it, whole));
        let (statement, value) = bound_by(whole).or_else(|| bound_by(slice()?))?;
        let value = value.filter(|_| statement.kind() == "assignment")?;
        if self.is_new_entry(part, whole, value) {
            return None;
        }
        let text = syntax.of(whole);
        let has_itself = |it: &Node<'s>| is_made_of(syntax, *it, text);
        if has_itself(&value) {
            let ways = alternatives(syntax, value).into_iter();
            let mut ways = ways.filter(has_itself);
            let is_part = match self.grows {
                Grows::Graph => is_detached(syntax, value) && self.happens_again(part, statement),
                Grows::Length => ways.all(|it| is_narrowed(syntax, it)),
                _ => ways.all(|it| is_shortened(syntax, it, text) || self.is_cut(syntax, it)),
            };
            return is_part.then_some(statement);
        }
        let is_attribute = matches!(self.search.owner.named, Named::Attribute { .. });
        let is_empty = is_constant(Some(value))
            || match self.grows {
                Grows::Length | Grows::Graph => is_new_tensor(syntax, value),
                _ => {
                    let is_own = !is_attribute || self.is_of_self(syntax, whole);
                    let is_written =
                        is_own && matches!(value.kind(), "list" | "dictionary" | "set");
                    is_written || is_fresh(syntax, value) || holds_nothing(syntax, Some(value))
                }
            };
        (is_empty && self.happens_again(part, whole)).then_some(statement)
    }

    /// True for the call of a function of the program's that returns a slice.
    fn is_cut(&self, syntax: &'s Syntax, value: Node<'s>) -> bool {
        let name = value.child_by_field_name("function");
        let functions = name.map(|it| self.functions(last_part(syntax.of(it))));
        let nodes = functions.into_iter().flatten().flat_map(|it| all(it.1));
        let mut slices = nodes.filter(|it| it.kind() == "slice");
        slices.any(|it| around(it, &["return_statement"]).is_some())
    }

    /// True for the assignment of an item that adds to what grows, and takes nothing from it: in a dictionary that grows
    /// by its entries, of one that is not there yet, or, in a loop over keys that is not repeated, of one that is then
    /// filled. `state["done"] = True` changes what an entry has beside what grows.
    fn is_new_entry(&self, part: &Part<'s>, whole: Node<'s>, value: Node<'s>) -> bool {
        let syntax = part.source.syntax;
        let (Some(key), Some(container)) = (key_of(whole), whole.child_by_field_name("value"))
        else {
            return false;
        };
        let deeper = keys_of(whole).saturating_sub(self.search.owner.keys.len());
        let is_formatted = || all(key).iter().any(|it| it.kind() == "interpolation");
        let varies = !is_constant(Some(key)) || is_formatted();
        let is_repeated = |it| self.is_repeated_by_calls(syntax, it, CALLS);
        if deeper >= 2 && is_constant(Some(value))
            || self.by_entries && deeper >= 1 && varies
            || is_never_again(syntax, key, container, is_repeated)
            || is_only_if_missing(syntax, whole, syntax.of(key), syntax.of(container))
        {
            return true;
        }
        let function = function_around(whole);
        let over = around(whole, &LOOPS).filter(|it| function_around(*it) == function);
        over.is_some_and(|over| {
            let left = over.child_by_field_name("left");
            let body = over.child_by_field_name("body");
            left.is_some_and(|it| syntax.of(it) == syntax.of(key))
                && body.is_some_and(|it| part.adds_within(it))
                && !self.is_repeated_by_calls(syntax, over, CALLS)
        })
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

    /// The functions of a name.
    fn functions(&self, name: &str) -> &[(&'s Syntax, Node<'s>)] {
        let functions = || self.by_name("function_definition", "name");
        let functions = self.functions.get_or_init(functions);
        functions.get(name).map_or(&[], |it| it)
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

    /// True if a function is called as a method of objects that are other ones, as far as one can see: of variables and
    /// attributes that do not lead to the owner, and that an object of a class of the files is assigned to.
    fn is_of_others(&self, function: &str) -> bool {
        let receivers = self.calls(function).iter().map(|(syntax, call)| {
            let object = call
                .child_by_field_name("function")?
                .child_by_field_name("object")?;
            Some(last_part(syntax.of(object)))
        });
        let receivers: Option<BTreeSet<&str>> = receivers.collect();
        receivers.is_some_and(|receivers| {
            (1..=MANY).contains(&receivers.len()) && receivers.iter().all(|it| self.is_another(it))
        })
    }

    /// True for the name of something that does not lead to the owner, and to which an object is assigned.
    fn is_another(&self, name: &str) -> bool {
        let is_object = |syntax: &Syntax, it: Node<'_>| {
            let value = bound_by(it).and_then(|(_, value)| value);
            let class = value.and_then(|it| it.child_by_field_name("function"));
            class.is_some_and(|it| self.search.has_class(last_part(syntax.of(it))))
        };
        let path = &self.search.owner.path;
        let is_on_the_way = path.contains(&name) || self.search.owner.name() == name;
        let mut sources = self.search.sources.iter();
        !is_on_the_way
            && sources.any(|source| {
                let nodes = all(source.syntax.root()).into_iter();
                let named = nodes.filter(|it| matches!(it.kind(), "identifier" | "attribute"));
                let mut named = named.filter(|it| last_part(source.syntax.of(*it)) == name);
                named.any(|it| is_object(source.syntax, it))
            })
    }

    /// The call of a function of the program's that takes from what it is given first.
    fn taken_by_function(&self, syntax: &'s Syntax, whole: Node<'s>) -> Option<Node<'s>> {
        let name = given_to(syntax, whole)?;
        let takes = self.functions(name).iter().any(|(syntax, function)| {
            let field = |name| function.child_by_field_name(name);
            let parameters = field("parameters").map_or_else(Vec::new, children);
            let mut own = parameters.into_iter();
            let first = own.find(|it| !matches!(syntax.of(*it), "self" | "cls"));
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

impl Found<'_> {
    /// True if it is done only where an attribute is true that is not, or up to an attribute that is 0.
    fn is_off(&self, numbers: &[(String, i64)]) -> bool {
        let syntax = self.source.syntax;
        let is_zero = |it: Node<'_>| {
            let name = it.child_by_field_name("attribute").map(|it| syntax.of(it));
            let known = numbers
                .iter()
                .find(|(known, _)| Some(known.as_str()) == name);
            known.is_some_and(|(_, number)| *number == 0)
        };
        let slices = all(self.node).into_iter().filter(|it| it.kind() == "slice");
        let mut needed: Vec<_> = slices.flat_map(all).collect();
        let mut at = self.node;
        while let Some(next) = around(at, &["if_statement", "elif_clause"])
            && function_around(next) == function_around(at)
        {
            needed.extend(
                next.child_by_field_name("condition")
                    .into_iter()
                    .flat_map(operands),
            );
            at = next;
        }
        needed.into_iter().any(is_zero)
    }

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
