//! The program's own source: the lines that make a reference, and the change that removes it.
//!
//! Source is read and parsed, never imported or run. What does not fit what is known of the objects, by name and
//! line, is not shown; a change is offered only if nothing is found in the project that could notice it.

mod attribute;
mod change;
mod container;
mod edit;
mod family;
mod files;
mod held;
mod import;
mod program;
mod project;
mod reference;
mod release;
mod signs;
mod syntax;
mod unlike;
mod uses;
mod weak;

use std::collections::BTreeMap;
use std::fs::metadata;
use std::path::Path;
use std::sync::OnceLock;
use std::time::SystemTime;

use self::change::{Candidate, Change};
use self::container::{put_into, registers};
use self::edit::{line_edits, unified};
use self::files::read;
use self::project::others_allow;
use self::reference::{Reference, shown};
use self::syntax::Syntax;
use crate::capture::is_library_file;
use crate::model::report::{Leak, Report};
use crate::model::source::Patch;

/// Maximum number of leaks of a report for which source is read.
const LEAKS: usize = 20;

static LOADED: OnceLock<SystemTime> = OnceLock::new();

/// Remembers that the program runs: a source file that is changed later is not the one that it has read.
pub fn remember_start() {
    LOADED.get_or_init(SystemTime::now);
}

/// Adds to the leaks of a report the program's own lines, and the change of them if nothing is found that could notice it.
///
/// Reads files, which may take a while: never call it while the program waits for a collection.
pub fn show_source(report: &mut Report) {
    let mut sources = BTreeMap::new();
    for leak in report.leaks.iter_mut().take(LEAKS) {
        if !leak.is_library() {
            show(leak, &mut sources);
        }
    }
}

/// Each file that was read, by its path.
type Sources = BTreeMap<String, Option<Syntax>>;

fn show(leak: &mut Leak, sources: &mut Sources) {
    let Some(cut) = leak.cuts.first() else {
        return;
    };
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
        to,
    };
    let places = [&to.location, &from.location, &cut.location];
    let mut files: Vec<&str> = Vec::new();
    for place in places.into_iter().flatten() {
        if !files.contains(&&*place.file) {
            files.push(&place.file);
        }
    }
    // A change of the code changes all references that this code makes.
    let is_only_cut = leak.cuts.iter().all(|it| {
        let target = nodes.get(it.target as usize);
        let is_same_code =
            target.is_some_and(|it| (&it.label, &it.location) == (&to.label, &to.location));
        it.proven && it.is_like(cut) && is_same_code
    });
    for file in files {
        let source = sources
            .entry(file.to_owned())
            .or_insert_with(|| unchanged(file));
        let Some(syntax) = source else { continue };
        let stored = reference.find(syntax, file);
        let attribute = reference
            .edge
            .strip_prefix('.')
            .filter(|_| stored.is_some());
        let put = attribute.and_then(|name| put_into(leak, cut.target, name, syntax, file));
        let made = put
            .or(stored)
            .or_else(|| registers(leak, cut.target, syntax));
        let Some(made) = made else { continue };
        leak.source = shown(syntax, made, file);
        if let Some(stored) = stored
            && is_only_cut
            && leak.source.is_some()
        {
            let line = syntax::lines(stored).0;
            leak.patch = patch(syntax, Path::new(file), line, reference.name()).ok();
        }
        return;
    }
}

/// A file of the program that is as it was when the program began.
fn unchanged(file: &str) -> Option<Syntax> {
    if is_library_file(file) || file.starts_with('<') {
        return None;
    }
    let changed = metadata(file).and_then(|facts| facts.modified()).ok()?;
    if LOADED.get().is_some_and(|&loaded| changed > loaded) {
        return None;
    }
    Syntax::parse(read(Path::new(file))?)
}

/// The patch for a line of a file: the change, if nothing is found that could notice it.
///
/// # Errors
/// Why there is none, as a clause.
pub fn fix(file: &Path, line: usize) -> Result<Patch, String> {
    let text =
        read(file).ok_or("it is not a file of Python source in UTF-8, or larger than 1 MiB")?;
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
    let mut all = weak::candidates(syntax);
    all.extend(release::candidates(syntax));
    all.retain(|candidate| name.is_none_or(|name| candidate.name == name));
    let holds = |range: &&(usize, usize)| (range.0..=range.1).contains(&line);
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
        let lines: Vec<String> = found.iter().map(|one| one.line.to_string()).collect();
        return Err(format!(
            "several references may be meant; name one of the lines {}",
            lines.join(", ")
        ));
    }
    found.pop().ok_or_else(|| {
        "no attribute of `self` is set there to a closure over `self` or to a bound method, and no exception, frame or \
         `with pytest.raises(…) as` is kept in a variable".into()
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
