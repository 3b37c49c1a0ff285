//! Advice: what a pattern says of a leak, and those of its remedies of which the graph shows that they are enough.

use petgraph::graph::EdgeIndex;
use rustc_hash::FxHashSet;

use super::case::{Case, at, bare_name, is_object, noun, public_name, short, spoken, the};
use crate::capture::ReferenceName;
use crate::cpython::{Binding, ObjectKind};
use crate::graph::{
    LeakNode, cannot_be_assigned, frees, is_content, of_same_line, registers_submodule,
};

/// What to change, as text and, if possible, as code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advice {
    pub text: String,
    pub before: Option<String>,
    pub after: Option<String>,
    /// The references that are gone by the first remedy.
    pub removes: Vec<EdgeIndex>,
    /// True if the text names no reference to remove, because the cycle is a library's.
    pub is_whole: bool,
    /// True if the text says all that is to be done, whatever references there are.
    pub is_complete: bool,
}

/// Of so many references that are removed together at most it is asked what else the same lines make.
const OF_SAME_LINE: usize = 64;

/// What a pattern has recognised: what keeps what, and what can be done about it.
pub struct Finding {
    /// What keeps what, in sentences.
    what: String,
    /// Best first.
    remedies: Vec<Remedy>,
    /// True if no reference is to be removed by the reader: the cycle is a library's.
    is_whole: bool,
    /// See [`Advice::is_complete`].
    is_complete: bool,
}

/// One way to fix a leak.
struct Remedy {
    /// The references that are gone then.
    removes: Vec<EdgeIndex>,
    /// What to do, in the imperative, without a full stop at the end.
    text: String,
    /// The code before and after.
    code: Option<(String, String)>,
}

impl Finding {
    pub fn new(what: String) -> Self {
        Self {
            what,
            remedies: Vec::new(),
            is_whole: false,
            is_complete: false,
        }
    }

    /// Text that is advice by itself, for a cycle of a library's own.
    pub fn whole(text: String) -> Self {
        Self {
            is_whole: true,
            ..Self::new(text)
        }
    }

    /// The remedy makes it unnecessary to remove any reference.
    pub fn complete(self) -> Self {
        Self {
            is_complete: true,
            ..self
        }
    }

    /// Adds what can be done, in the imperative and without a full stop at the end, and the reference that is gone then.
    pub fn remedy(self, removes: EdgeIndex, text: impl Into<String>) -> Self {
        self.remedy_of(vec![removes], text)
    }

    /// As [`Finding::remedy`], for what removes several references.
    pub fn remedy_of(mut self, removes: Vec<EdgeIndex>, text: impl Into<String>) -> Self {
        self.remedies.push(Remedy {
            removes,
            text: text.into(),
            code: None,
        });
        self
    }

    /// Shows the latest remedy in code.
    pub fn code(mut self, before: impl Into<String>, after: impl Into<String>) -> Self {
        if let Some(remedy) = self.remedies.last_mut() {
            remedy.code = Some((before.into(), after.into()));
        }
        self
    }
}

/// A clause about a callable, without its place if the text before has said it.
fn without_repeated_place(text: &str, clause: &str, callable: &LeakNode) -> String {
    let place = at(callable);
    match text.contains(&format!("{}{place}", spoken(callable))) {
        true => clause.replace(&format!("{}{place}", the(callable)), &the(callable)),
        false => clause.to_owned(),
    }
}

impl Case<'_> {
    /// The advice: what was found, the remedies that are enough, and the cut, if none of them speaks of it.
    pub fn advise(&self, finding: Finding) -> Advice {
        let mut text = finding.what;
        if finding.is_whole {
            return Advice {
                text,
                is_whole: true,
                ..Advice::default()
            };
        }
        let mut remedies = finding.remedies;
        remedies.retain(|remedy| self.is_enough(&remedy.removes));
        for (index, remedy) in remedies.iter().enumerate() {
            match index {
                0 => text += &format!(" {}.", capitalized(&remedy.text)),
                _ => text += &format!(" Or {}.", remedy.text),
            }
        }
        if let Some(cut) = self.cut {
            let removal = self.removal(cut);
            let removal = match self.graph.edge_endpoints(cut) {
                Some((owner, _)) => without_repeated_place(&text, &removal, &self.graph[owner]),
                None => removal,
            };
            if remedies.is_empty() {
                text += &format!(" {}.", capitalized(&removal));
                let target = self
                    .graph
                    .edge_endpoints(cut)
                    .map(|(_, to)| &self.graph[to]);
                if target.is_some_and(|target| target.is_tensor) && is_content(self.graph, cut) {
                    text += " No other reference of the cycle can be removed.";
                }
            } else if !remedies.iter().any(|remedy| remedy.removes.contains(&cut))
                && !is_content(self.graph, cut)
                && !self.is_librarys(cut)
                && !mentions(&text, &self.graph[cut].name)
            {
                text += &format!(" Or {removal}.");
            }
        }
        let removes = remedies.first().map(|remedy| remedy.removes.clone());
        let (before, after) = remedies
            .into_iter()
            .next()
            .and_then(|remedy| remedy.code)
            .unzip();
        Advice {
            text,
            before,
            after,
            is_whole: false,
            is_complete: finding.is_complete && removes.is_some(),
            removes: removes.unwrap_or_default(),
        }
    }

    /// True for an attribute of a library's object, and an item of a container that a library's code fills.
    fn is_librarys(&self, edge: EdgeIndex) -> bool {
        use ReferenceName::{Index, Key, Member};
        if matches!(self.graph[edge].name, Key(_) | Index(_) | Member) && self.is_by_library(edge) {
            return true;
        }
        let owner = self
            .graph
            .edge_endpoints(edge)
            .map(|(from, _)| &self.graph[from]);
        owner.is_some_and(|owner| {
            owner.is_library() && owner.description.kind == ObjectKind::Instance
        })
    }

    /// True for a reference of the cycle that a library's code has made or stored.
    fn is_by_library(&self, edge: EdgeIndex) -> bool {
        let step = self.cycle.edges.iter().position(|&it| it == edge);
        step.is_some_and(self.made_by_library)
    }

    /// True if removing these references, and all that the same lines make, does what the cut does.
    pub fn is_enough(&self, removes: &[EdgeIndex]) -> bool {
        if !self.cuts_free {
            return removes.iter().any(|edge| self.cycle.edges.contains(edge));
        }
        let mut removed: Vec<EdgeIndex> = self.others.to_vec();
        for &edge in removes.iter().take(OF_SAME_LINE) {
            removed.extend(of_same_line(self.graph, edge));
        }
        removed.extend(removes.iter().skip(OF_SAME_LINE));
        frees(self.graph, &removed)
    }

    /// How to remove a reference, as a clause in the imperative.
    pub fn removal(&self, edge: EdgeIndex) -> String {
        use ObjectKind as Kind;
        use ReferenceName as Name;
        let Some((from, to)) = self.graph.edge_endpoints(edge) else {
            return String::new();
        };
        let (owner, target) = (&self.graph[from], &self.graph[to]);
        let class = short(&owner.description.type_name);
        let kept = noun(target);
        let name = &self.graph[edge].name;
        match (owner.description.kind, name) {
            (Kind::Generator | Kind::Coroutine | Kind::AsyncGenerator, Name::Local(variable)) => {
                format!(
                    "run the {}{} to its end or close it, so that it drops its local variable \
                     `{variable}`",
                    owner.description.label,
                    at(owner)
                )
            }
            (Kind::Frame, Name::Local(variable)) => {
                let label = owner.description.label.as_str();
                let function = label.strip_prefix("frame of ").unwrap_or(label);
                if self.is_in_cell(edge) {
                    return format!(
                        "do not keep the {kept} in `{variable}`, which an inner function or comprehension of `{function}` \
                         uses"
                    );
                }
                let whose = match owner.is_library() {
                    true => ", which is a library's function",
                    false => "",
                };
                format!("delete the local variable `{variable}` before `{function}` ends{whose}")
            }
            (_, Name::Closure(variable)) => {
                format!("let {}{} not capture `{variable}`", the(owner), at(owner))
            }
            (_, Name::Default(variable)) => {
                format!("give {}{} no default `{variable}`", the(owner), at(owner))
            }
            (Kind::Class, Name::Attribute(attribute)) => {
                let label = owner.description.label.as_str();
                let class = short(label.strip_prefix("class ").unwrap_or(label));
                format!(
                    "do not keep the {kept} in the attribute `{attribute}` of the class `{class}`"
                )
            }
            (Kind::Exception, Name::Attribute(part)) if part.starts_with("__") => {
                format!("set `{part}` of the {class} to None")
            }
            (Kind::Exception, Name::Attribute(part)) if part.contains('[') => {
                format!("drop the {class}, which keeps the {kept} as `{part}`")
            }
            (Kind::Exception, Name::Attribute(attribute)) => {
                format!("set `{class}.{attribute}` to None when it is no longer needed")
            }
            (Kind::Tuple, Name::Index(index)) => {
                format!("do not put the {kept} into the tuple (it is `[{index}]`)")
            }
            (Kind::Tuple, Name::Attribute(field)) => {
                format!("do not put the {kept} into the {class} as `{field}`")
            }
            (_, Name::Key(_) | Name::Index(_)) => {
                format!(
                    "remove the item at `{name}` from {} when it is no longer needed",
                    self.container(from)
                )
            }
            (_, Name::Member) if self.graph[from].description.type_name == "frozenset" => {
                format!("do not put the {kept} into {}", self.container(from))
            }
            (_, Name::Member) => format!("remove the {kept} from {}", self.container(from)),
            (Kind::Method, _) => "do not keep the bound method".to_owned(),
            (Kind::Partial, Name::Attribute(part)) => {
                format!("do not give the {kept} to the `functools.partial` (as `{part}`)")
            }
            (_, Name::Attribute(attribute)) if is_object(owner) => {
                self.attribute_removal(edge, attribute)
            }
            _ => format!("remove {name} of the {class}"),
        }
    }

    /// As [`Self::removal`], of an attribute of an instance.
    fn attribute_removal(&self, edge: EdgeIndex, attribute: &str) -> String {
        let Some((from, to)) = self.graph.edge_endpoints(edge) else {
            return String::new();
        };
        let (owner, target) = (&self.graph[from], &self.graph[to]);
        let class = short(&owner.description.type_name);
        let kept = noun(target);
        let is_given = attribute == "_mock_wraps";
        let attribute = public_name(owner, attribute);
        if attribute == "_coro" && class == "Task" {
            return "`cancel()` the Task while its event loop runs, so that its coroutine ends"
                .to_owned();
        }
        // A handle of an event loop with no callback is called all the same (Lib/asyncio/events.py).
        let of_loop = ["asyncio.events.Handle", "asyncio.events.TimerHandle"];
        if of_loop.contains(&owner.description.type_name.as_str())
            && matches!(attribute, "_callback" | "_args")
        {
            return format!("`cancel()` the {class} when it is no longer needed");
        }
        if attribute == "_callbacks[0]" {
            return format!("give the {kept} to the `remove_done_callback()` of the {class}");
        }
        if is_given || cannot_be_assigned(owner, &self.graph[edge].name, target) {
            return format!("drop the {class}, which keeps the {kept} as `{attribute}`");
        }
        if owner.description.frozen {
            return format!("do not keep the {kept} as `{class}.{attribute}`");
        }
        if owner.description.own_setattr {
            return format!(
                "do not keep the {kept} as `{class}.{attribute}` (the `__setattr__` of the {class} decides what an \
                 assignment does)"
            );
        }
        let binding = self.binding_of(edge);
        if binding == Binding::Assigned {
            return format!(
                "do not keep the {kept} as `{class}.{attribute}` (a descriptor of the {class} decides what an assignment \
                 does)"
            );
        }
        if attribute.ends_with("_hooks") {
            return format!(
                "remove the hook from `{class}.{attribute}`, by the handle of its registration"
            );
        }
        // The code of the library's class, from which the program's is derived, needs the container.
        use ObjectKind::{Deque, Dict, List, Set};
        let can_be_cleared = matches!(target.description.kind, Deque | Dict | List | Set);
        if can_be_cleared && !owner.is_library() && self.is_by_library(edge) {
            return format!("call `{class}.{attribute}.clear()` when it is no longer needed");
        }
        // The instance's attribute hides the method of its class, which is needed.
        let hides_method = binding == Binding::Read
            || self.steps().any(|step| {
                step.object.description.kind == ObjectKind::Method
                    && bare_name(step.object) == attribute
                    && step.leads_to(owner)
            });
        // What the class itself sets, other code of it reads.
        let is_users = owner.is_library() && !self.is_by_library(edge);
        let removal = match is_users || hides_method {
            true => format!("remove `{class}.{attribute}`"),
            false => format!("set `{class}.{attribute}` to None"),
        };
        let registered = match registers_submodule(&self.graph[edge]) {
            true => format!(
                " (the {kept} is then no submodule of the {class}: `parameters()` and `state_dict()` leave it out)"
            ),
            false => String::new(),
        };
        format!("{removal} when it is no longer needed{registered}")
    }
}

/// The references that are not spoken of yet, in their order: `Also …`.
pub fn also(case: &Case<'_>, cuts: &[EdgeIndex], advice: &mut Advice) {
    if advice.is_whole || advice.is_complete {
        return;
    }
    let told = case
        .cut
        .map_or_else(Vec::new, |first| of_same_line(case.graph, first));
    let told = told.into_iter().chain(case.cut);
    let told: FxHashSet<EdgeIndex> = told.chain(advice.removes.iter().copied()).collect();
    let first = case.cut.map(|first| case.removal(first));
    for &cut in cuts.iter().filter(|cut| !told.contains(cut)) {
        let removal = case.removal(cut);
        if first.as_ref() != Some(&removal)
            && !advice.text.contains(&removal)
            && !advice.text.contains(&capitalized(&removal))
        {
            advice.text += &format!(" Also {removal}.");
        }
    }
}

/// True if a text has the name of a reference, as an attribute, a variable or a key.
fn mentions(text: &str, name: &ReferenceName) -> bool {
    use ReferenceName as Name;
    let has = |written: &str| text.contains(written);
    match name {
        Name::Attribute(name) => {
            has(&format!(".{name}`")) || has(&format!("`{name}`")) || has(&format!(".{name} "))
        }
        Name::Closure(name) | Name::Default(name) | Name::Local(name) => has(&format!("`{name}`")),
        Name::Key(_) | Name::Index(_) => has(&format!("`{name}`")),
        _ => true,
    }
}

/// A clause with a capital letter, to begin a sentence with.
pub fn capitalized(clause: &str) -> String {
    let mut letters = clause.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}
