//! The program's own source: the lines that make a reference, and the change that removes it.
//!
//! Source is read and parsed, never imported or run. What does not fit what is known of the objects, by name and
//! line, is not shown; a change is offered only if nothing is found in the project that could notice it.

mod adding;
mod anew;
mod attribute;
mod cache;
mod change;
mod container;
mod descriptor;
mod doubt;
mod edit;
mod escaping;
mod family;
mod field;
mod files;
mod held;
mod import;
mod item;
mod keys;
mod limiting;
mod lookup;
mod mention;
mod own;
mod owner;
mod part;
mod partial;
mod place;
mod program;
mod project;
mod reference;
mod release;
mod remembered;
mod shrinking;
mod signs;
mod sources;
mod stores;
mod syntax;
mod taken;
mod unlike;
mod uses;
mod weak;
mod written;

use std::path::Path;

pub use self::adding::adding;
use self::change::{Candidate, Change};
use self::container::put_into;
pub use self::doubt::doubt_libraries;
use self::edit::{line_edits, unified};
use self::escaping::put_into_variable;
use self::files::{read, words};
pub use self::limiting::{Beside, Limit, limiting};
use self::lookup::keep_to_the_method;
use self::own::file_of_own;
use self::partial::made_partial;
use self::place::{Made, made, only_store, put};
use self::project::others_allow;
use self::reference::{Reference, show_around, shown};
use self::sources::Source;
pub use self::sources::{Program, Sources, remember_start};
use self::stores::stores;
use self::syntax::Syntax;
use self::taken::{expression, taken};
use crate::capture::{ClassSource, ReferenceName, is_library_file};
use crate::diagnose::case::short;
use crate::model::report::{Cut, Leak, Location, Node as Object, NodeKind, Report};
use crate::model::source::{Patch, SourceLines};

/// Maximum number of leaks of a report for which source is read.
const LEAKS: usize = 100;

/// Adds to the leaks of a report the program's own lines, and the change of them if nothing is found that could notice it.
///
/// Reads files, which may take a while: never call it while the program waits for a collection.
pub fn show_source(report: &mut Report, program: &Program) {
    let mut sources = Sources::new(program);
    let files = remembered::state_of(program);
    for leak in report.leaks.iter_mut().take(LEAKS) {
        if leak.is_library() && !is_of_own_variable(leak) {
            continue;
        }
        add_cells(leak, program);
        remembered::or(leak, files, |leak| show(leak, &mut sources));
        keep_to_the_method(leak, &mut sources);
    }
}

/// Adds all cells to the files of a leak that is from one, as if they were one file. The cell of a class that has no code
/// is not known: it may be any that has its name.
fn add_cells(leak: &mut Leak, program: &Program) {
    let origin = &mut leak.origin;
    let unknown = origin.owner.first().filter(|class| class.file.is_none());
    let class = unknown.map(|class| short(&class.name));
    let mut cells = program.cells.iter();
    if cells.any(|(file, text)| {
        origin.files.contains(file) || class.is_some_and(|class| words(text).any(|it| it == class))
    }) {
        origin.files.extend(program.cells.keys().cloned());
    }
}

/// True for what a known leak of a library is avoided by in the program: a variable of its function, such as the `info` of
/// `with pytest.raises(…) as info`.
fn is_of_own_variable(leak: &Leak) -> bool {
    let cut = leak.cuts.first();
    cut.is_some_and(|cut| {
        let at = cut.location.as_ref();
        cut.edge.starts_with("local ") && at.is_some_and(|at| !is_library_file(&at.file))
    })
}

fn show(leak: &mut Leak, sources: &mut Sources) {
    let Some(cut) = leak.cuts.first().cloned() else {
        return;
    };
    if show_keeper_of_exception(leak, &cut, sources) {
        return;
    }
    let nodes = &leak.graph.nodes;
    let (Some(from), Some(to)) = (
        nodes.get(cut.source as usize),
        nodes.get(cut.target as usize),
    ) else {
        return;
    };
    let reference = Reference {
        edge: &cut.edge,
        from,
    };
    if speaks_of_attribute_only(leak, &cut) {
        place_cuts(leak, &cut, None, None);
        return;
    }
    // A change of the code changes all references that this code makes.
    let is_only_cut = leak.cuts.iter().all(|it| {
        let target = nodes.get(it.target as usize);
        let is_same_code =
            target.is_some_and(|it| (&it.label, &it.location) == (&to.label, &to.location));
        it.proven && it.is_like(&cut) && is_same_code
    });
    let mut files = Vec::new();
    match where_made(leak, &cut, to, sources, &mut files) {
        Made::Line(source, stored) => {
            let Source {
                file,
                syntax,
                is_cell,
            } = source;
            let attribute = cut.edge.strip_prefix('.');
            let put = attribute.and_then(|name| put_into(leak, cut.target, name, syntax, file));
            let may_change = attribute.is_some() && is_only_cut && !is_cell;
            let changed = may_change.then_some(stored);
            (leak.source, leak.patch) = lines_and_change(
                leak,
                put.unwrap_or(stored),
                changed,
                syntax,
                file,
                &reference,
            );
            let is_container = to.kind == NodeKind::Container;
            let is_within = attribute.is_some_and(|name| {
                let other = first_code(leak).rsplit_once('.');
                other.is_some_and(|(_, other)| other != name)
            });
            let is_put = is_item(&cut.edge);
            if (is_container || is_within || is_put) && put.is_none() && leak.patch.is_none() {
                show_taken(leak, sources);
            }
        }
        Made::OneOf(statements) => show_candidates(leak, &cut, &statements),
        Made::Class(name, location) => {
            place_cuts(leak, &cut, Some(name), Some(location));
        }
        Made::Unknown if is_about_attribute(leak, &cut) => {}
        Made::Unknown => {
            if !show_item(leak, &cut, sources) {
                show_variable(leak, &cut, is_only_cut, sources);
            }
        }
    }
}

/// Where the program made the reference that is cut, to this object.
fn where_made<'s>(
    leak: &Leak,
    cut: &Cut,
    to: &Object,
    sources: &'s mut Sources,
    files: &'s mut Vec<String>,
) -> Made<'s> {
    let kept_as = leak.origin.kept_as.as_deref().unwrap_or_default();
    let (attribute, is_of_container) = match (cut.edge.strip_prefix('.'), kept_as.strip_prefix('.'))
    {
        (Some(attribute), _) if !speaks_of_another(leak, attribute, sources) => (attribute, false),
        (None, Some(attribute)) if is_item(&cut.edge) => (attribute, true),
        _ => return Made::Unknown,
    };
    if let Some(file) = file_of_own(leak, cut, attribute, sources) {
        files.push(file);
        return only_store(attribute, &sources.of(files));
    }
    if is_of_container {
        return put(&leak.origin, attribute, to, sources, files);
    }
    let item = item_of(leak, cut.target);
    made(&leak.origin, attribute, to, item, sources, files)
}

/// The expression that makes a reference, and the change of what stores it, or else the lines around.
fn lines_and_change(
    leak: &Leak,
    made: tree_sitter::Node<'_>,
    changed: Option<tree_sitter::Node<'_>>,
    syntax: &Syntax,
    file: &str,
    reference: &Reference<'_>,
) -> (Option<SourceLines>, Option<Patch>) {
    let Some(mut source) = shown(syntax, made, file) else {
        return (None, None);
    };
    let patch = changed.and_then(|stored| patch_for(leak, syntax, file, stored, reference));
    if patch.is_none() {
        show_around(&mut source, syntax, made);
    }
    (Some(source), patch)
}

/// The patch for the line that stores a reference; none with a weak reference where the advice knows of none, as the
/// object may not take any.
fn patch_for(
    leak: &Leak,
    syntax: &Syntax,
    file: &str,
    stored: tree_sitter::Node<'_>,
    reference: &Reference<'_>,
) -> Option<Patch> {
    let line = syntax::lines(stored).0;
    let patch = patch(syntax, Path::new(file), line, reference.name()).ok()?;
    (!patch.diff.contains("weakref") || leak.advice.text.contains("weak")).then_some(patch)
}

/// What the cycle goes on to from a container with this number in the graph: the reference and the object.
fn item_of(leak: &Leak, container: u32) -> Option<(&str, &Object)> {
    let at = leak
        .cycle
        .iter()
        .position(|step| step.node == Some(container))?;
    let next = leak.cycle[(at + 1) % leak.cycle.len()].node?;
    let object = leak.graph.nodes.get(next as usize)?;
    Some((leak.cycle[at].edge.as_str(), object))
}

/// True if the advice begins with another attribute, whose line is another: but for one that the code of a library set, as
/// no file of the program sets any of that name.
fn speaks_of_another(leak: &Leak, attribute: &str, sources: &mut Sources) -> bool {
    let code = first_code(leak);
    if leak.advice.text.contains(&format!(".{attribute}` to None")) {
        return false;
    }
    match code.rsplit_once('.') {
        Some((_, other)) => {
            other != attribute && (!is_of_library(leak, other) || is_set(other, sources))
        }
        None => leak.pattern.as_deref() == Some("tensor-attribute-leads-back") && code != attribute,
    }
}

/// True if a variable of a frame is cut, but the advice is about the attribute that keeps an exception: where the variable
/// gets its value, there is nothing to change.
fn speaks_of_attribute_only(leak: &Leak, cut: &Cut) -> bool {
    let variable = cut.edge.strip_prefix("local '");
    let variable = variable.and_then(|it| it.strip_suffix('\''));
    leak.pattern.as_deref() == Some("exception-on-object")
        && first_code(leak).contains('.')
        && variable.is_some_and(|it| {
            let text = leak.advice.text.to_lowercase();
            !text.contains(&format!("delete `{}`", it.to_lowercase()))
        })
}

/// True if a variable that an inner function captures is cut, but the advice is about an attribute that has the function:
/// where it uses the variable, which may be far from where it is stored, there is nothing to change.
fn is_about_attribute(leak: &Leak, cut: &Cut) -> bool {
    let function = leak.graph.nodes.get(cut.source as usize);
    if function.is_none_or(|it| it.label.ends_with("<lambda>")) {
        return false;
    }
    let variable = cut.edge.strip_prefix("closure variable '");
    variable
        .and_then(|it| it.strip_suffix('\''))
        .is_some_and(|variable| {
            first_code(leak).contains('.')
                && !leak.advice.text.contains(&format!("not `{variable}`"))
        })
}

/// True if a file of the program sets an attribute of this name, or may.
fn is_set(attribute: &str, sources: &mut Sources) -> bool {
    sources.load_all_having(&[attribute]).is_none_or(|files| {
        let mut read = files.iter().filter_map(|file| sources.get(file));
        read.any(|syntax| !stores(syntax, attribute).is_empty())
    })
}

/// What stands first between backticks in the first sentence of the advice.
fn first_code(leak: &Leak) -> &str {
    let first = leak.advice.text.split(". ").next().unwrap_or_default();
    first.split('`').nth(1).unwrap_or_default()
}

/// True for an attribute that only objects of libraries have in the cycle.
fn is_of_library(leak: &Leak, attribute: &str) -> bool {
    let mut owners = leak.cycle.iter().filter_map(|step| {
        let is_it = step.edge.strip_prefix('.') == Some(attribute);
        leak.graph.nodes.get(step.node.filter(|_| is_it)? as usize)
    });
    let is_librarys = |owner: &Object| {
        let at = owner.location.as_ref();
        at.is_some_and(|at| is_library_file(&at.file))
    };
    owners.next().is_some_and(is_librarys) && owners.all(is_librarys)
}

/// True for a reference that a container has.
fn is_item(edge: &str) -> bool {
    edge.starts_with('[') || edge == ReferenceName::Member.to_string()
}

/// Shows where a variable gets its value, or where a bound method is given away.
fn show_variable(leak: &mut Leak, cut: &Cut, is_only_cut: bool, sources: &mut Sources) {
    let nodes = &leak.graph.nodes;
    let (from, to) = (&nodes[cut.source as usize], &nodes[cut.target as usize]);
    let kept = variable_of_exception(leak, cut);
    // A change of the variable may leave another that keeps the exception.
    let is_only_cut = is_only_cut
        && kept
            .as_ref()
            .and_then(Reference::name)
            .is_none_or(|variable| {
                leak.advice
                    .text
                    .to_lowercase()
                    .contains(&format!("delete `{}`", variable.to_lowercase()))
            });
    let reference = kept.unwrap_or(Reference {
        edge: &cut.edge,
        from,
    });
    let of_frame = &reference.from.location;
    let places = [of_frame, &to.location, &from.location, &cut.location];
    let found = places.into_iter().flatten().find_map(|place| {
        let file = &*place.file;
        if is_library_file(file) {
            return None;
        }
        sources.load(file);
        let syntax = sources.get(file)?;
        let stored = reference.find(syntax, file)?;
        let changed = (is_only_cut && !sources.is_cell(file)).then_some(stored);
        let put = item_of(leak, cut.target)
            .and_then(|(item, _)| put_into_variable(syntax, stored, item))
            .unwrap_or(stored);
        Some(lines_and_change(
            leak, put, changed, syntax, file, &reference,
        ))
    });
    if let Some(found) = found {
        (leak.source, leak.patch) = found;
        return;
    }
    show_taken(leak, sources);
    if leak.source.is_none() {
        without_class(leak, cut, sources);
    }
}

/// The variable by which a frame keeps the exception whose traceback is to be cut: the exception is kept there.
fn variable_of_exception<'a>(leak: &'a Leak, cut: &Cut) -> Option<Reference<'a>> {
    let at = leak.cycle.iter().position(|step| {
        step.node == Some(cut.source) && step.edge == cut.edge && cut.edge == ".__traceback__"
    })?;
    let before = &leak.cycle[(at + leak.cycle.len() - 1) % leak.cycle.len()];
    Some(Reference {
        edge: &before.edge,
        from: leak.graph.nodes.get(before.node? as usize)?,
    })
}

/// Shows the only statement that gives an attribute the exception whose traceback is to be cut, if the advice is about that
/// attribute. What is to change is the exception, so that no change of the statement is offered.
fn show_keeper_of_exception(leak: &mut Leak, cut: &Cut, sources: &mut Sources) -> bool {
    if cut.edge != ".__traceback__" || !leak.advice.text.contains("` keeps ") {
        return false;
    }
    let kept_as = leak.origin.kept_as.as_deref().unwrap_or_default();
    let (_, named) = first_code(leak).rsplit_once('.').unwrap_or_default();
    let attribute = kept_as.strip_prefix('.').filter(|it| *it == named);
    let exception = leak.graph.nodes.get(cut.source as usize);
    let (Some(attribute), Some(exception)) = (attribute, exception) else {
        return false;
    };
    let (origin, mut files) = (leak.origin.of_keeper(), Vec::new());
    let found = made(&origin, attribute, exception, None, sources, &mut files);
    let Made::Line(source, stored) = found else {
        return false;
    };
    leak.source = shown(source.syntax, stored, source.file);
    if let Some(lines) = &mut leak.source {
        show_around(lines, source.syntax, stored);
    }
    leak.source.is_some()
}

/// Gives the cuts that the same code made the places of all statements that may have.
fn show_candidates(
    leak: &mut Leak,
    like: &Cut,
    statements: &[(Source<'_>, tree_sitter::Node<'_>)],
) {
    let places = statements.iter().map(|(source, node)| Location {
        file: source.file.to_owned(),
        line: syntax::lines(*node).0 as u32,
    });
    let places: Vec<Location> = places.collect();
    let sources = statements.iter();
    let sources = sources.map(|(source, node)| shown(source.syntax, *node, source.file));
    leak.candidate_sources = sources.collect::<Option<_>>().unwrap_or_default();
    for cut in leak.cuts.iter_mut().filter(|it| it.is_like(like)) {
        cut.candidates.clone_from(&places);
    }
}

/// Shows where the program gives a bound method or a partial away, in the place of what keeps it.
fn show_taken(leak: &mut Leak, sources: &mut Sources) {
    let Some((file, start)) = taken(leak, sources).or_else(|| made_partial(leak, sources)) else {
        return;
    };
    let Some(syntax) = sources.get(&file) else {
        return;
    };
    let Some(node) = expression(syntax, start) else {
        return;
    };
    let line = node.start_position().row as u32 + 1;
    let is_marked = leak.source.as_ref();
    let is_shown = is_marked.is_some_and(|it| (&*it.file, it.marked) == (&*file, line));
    if let Some(mut source) = shown(syntax, node, &file).filter(|_| !is_shown) {
        show_around(&mut source, syntax, node);
        leak.source = Some(source);
    }
}

/// Shows where the program puts the item to be cut into a dict that a function captures; true if that is known.
fn show_item(leak: &mut Leak, cut: &Cut, sources: &mut Sources) -> bool {
    let Some((file, start)) = item::item(leak, cut, sources) else {
        return false;
    };
    let found = sources.get(&file).and_then(|syntax| {
        let node = item::statement(syntax, start)?;
        let mut source = shown(syntax, node, &file)?;
        show_around(&mut source, syntax, node);
        Some(source)
    });
    let is_known = found.is_some();
    leak.source = found.or(leak.source.take());
    is_known
}

/// Gives a cut, and all that the same code made, another place.
fn place_cuts(leak: &mut Leak, like: &Cut, class: Option<String>, location: Option<Location>) {
    for cut in leak.cuts.iter_mut().filter(|cut| cut.is_like(like)) {
        cut.in_class.clone_from(&class);
        cut.location.clone_from(&location);
    }
}

/// Says no class that is not known to store the reference. Where the file cannot be read, it is the owner's, if that
/// derives from no other of the program.
fn without_class(leak: &mut Leak, cut: &Cut, sources: &Sources) {
    let nodes = &leak.graph.nodes;
    let is_there = |node: &&Object| node.location == cut.location;
    let is_object = |node: &Object| matches!(node.kind, NodeKind::Object | NodeKind::Buffer);
    let mut here = nodes.iter().filter(is_there).peekable();
    let is_class = here.peek().is_some() && here.all(is_object);
    let file_of = |class: &ClassSource| class.file.clone().filter(|file| !is_library_file(file));
    let own: Vec<String> = leak.origin.owner.iter().filter_map(file_of).collect();
    let owner = &nodes[cut.source as usize];
    let is_owners = is_there(&owner) && own.len() == 1 && sources.get(&own[0]).is_none();
    if cut.edge.starts_with('.') && is_class && !is_owners {
        place_cuts(leak, cut, None, None);
    }
}

/// The patch for a line of a file: the change, if nothing is found that could notice it.
///
/// # Errors
/// Why there is none, as a clause.
pub fn fix(file: &Path, line: usize) -> Result<Patch, String> {
    if file.exists() && !file.is_file() {
        return Err("it is not a file".to_owned());
    }
    let text = read(file).ok_or("it is not Python source in UTF-8, or it is larger than 1 MiB")?;
    let lines = text.lines().count();
    if !(1..=lines).contains(&line) {
        let s = if lines == 1 { "" } else { "s" };
        return Err(format!("the file has {lines} line{s}"));
    }
    let syntax = Syntax::parse(text).ok_or("it could not be parsed")?;
    patch(&syntax, file, line, None)
}

fn patch(syntax: &Syntax, file: &Path, line: usize, name: Option<&str>) -> Result<Patch, String> {
    if syntax.root().has_error() {
        return Err("the file has a syntax that is not understood".into());
    }
    let candidate = candidate(syntax, line, name)?;
    let change = candidate.change?;
    if let Some(subject) = &change.subject {
        others_allow(syntax, file, subject)?;
    }
    Ok(written(syntax, file, candidate.line, &change))
}

/// The one reference that a line is about.
fn candidate(syntax: &Syntax, line: usize, name: Option<&str>) -> Result<Candidate, String> {
    let holds = |range: &&(usize, usize)| (range.0..=range.1).contains(&line);
    let is_named = |own: &str| name.is_none_or(|name| own == name);
    let mut all = weak::candidates(syntax, |own, places| {
        is_named(own) && places.iter().flatten().any(|range| holds(&range))
    });
    all.extend(release::candidates(syntax));
    all.retain(|candidate| is_named(&candidate.name));
    // How far it is to the line: by which place, and how many lines that has.
    let distance = |candidate: &Candidate| {
        let ranges = candidate.places.iter().enumerate();
        ranges
            .filter_map(|(rank, ranges)| {
                let range = ranges.iter().find(holds)?;
                Some((rank, range.1 - range.0))
            })
            .min()
    };
    let least = all.iter().filter_map(distance).min();
    let mut found: Vec<Candidate> = all
        .into_iter()
        .filter(|candidate| least.is_some() && distance(candidate) == least)
        .collect();
    // Two assignments of one variable may need one change.
    found.dedup_by(|one, other| one.change.is_ok() && one.change == other.change);
    if found.len() > 1 {
        let mut lines: Vec<String> = found.iter().map(|one| one.line.to_string()).collect();
        lines.dedup();
        return Err(match lines.as_slice() {
            [_] => "several references on this line may be meant".to_owned(),
            several => format!(
                "several references may be meant; name one of the lines {}",
                several.join(", ")
            ),
        });
    }
    found.pop().ok_or_else(|| {
        "no attribute of `self` is directly set to a closure over `self` or a bound method, and no variable keeps \
         an exception, a frame or what `pytest.raises(…)` returns".into()
    })
}

fn written(syntax: &Syntax, file: &Path, line: usize, change: &Change) -> Patch {
    let edits = line_edits(syntax.text(), &change.edits);
    Patch {
        file: file.to_string_lossy().into_owned(),
        line: line as u32,
        summary: change.summary.clone(),
        diff: unified(syntax.text(), &edits),
        edits,
    }
}
