//! The lines of the program that add to what grows, found by the name that a report gives its owner.
//!
//! All code that can come to the owner must be known: it is named in these files and nowhere else, and what is done with it
//! wherever it is named adds to it or hands it to nobody. Then one of the statements that add to it is what makes it grow.

use tree_sitter::Node;

use super::container::same_key;
use super::mention::{Grows, Use, used, whole};
use super::owner::{FILES, LINES, Named, Owner, Search, Unknown};
use super::reference::shown;
use super::sources::{Program, Source, Sources};
use super::syntax::{Syntax, all, around, lines};
use crate::model::growth::Growth;
use crate::model::source::SourceLines;

/// By these a program comes to variables and attributes without their names.
const DYNAMIC: [&str; 6] = ["exec", "eval", "globals", "locals", "vars", "__dict__"];
/// The lines of a program of which one adds to an owner; none if other code may, or if they are many.
pub fn adding(growth: &Growth, program: &Program, sources: &mut Sources) -> Vec<SourceLines> {
    let is_read = program.main.is_some() || !program.cells.is_empty();
    let owner = Owner::parse(&growth.owner).filter(|_| is_read);
    let (Some(owner), Some(grows)) = (owner, Grows::of(growth)) else {
        return Vec::new();
    };
    if sources.have_changed() || DYNAMIC.iter().any(|word| sources.may_have(word)) {
        return Vec::new();
    }
    let Some(files) = files(&owner, sources) else {
        return Vec::new();
    };
    let all = sources.of(&files);
    let search = Search::new(&owner, program, &all);
    if search.is_common() {
        return Vec::new();
    }
    let Ok(mut found) = search.adding(grows) else {
        return Vec::new();
    };
    found.dedup_by_key(|(source, node)| (source.file, lines(*node).0));
    if found.len() > LINES {
        return Vec::new();
    }
    let methods = found.iter().filter_map(|(source, node)| {
        let function = around(*node, &["function_definition"])?;
        Some(
            source
                .syntax
                .of(function.child_by_field_name("name")?)
                .to_owned(),
        )
    });
    let methods: Vec<String> = methods.collect();
    let shown = found
        .iter()
        .map(|(source, node)| shown(source.syntax, *node, source.file));
    let shown: Vec<SourceLines> = shown.collect::<Option<_>>().unwrap_or_default();
    let is_one = methods.iter().all(|it| search.is_one(it));
    match !is_one || methods.iter().any(|it| is_replaced(it, sources)) {
        true => Vec::new(),
        false => shown,
    }
}

/// True if the program gives an attribute the name of a function, by which another may be called in its place.
fn is_replaced(function: &str, sources: &mut Sources) -> bool {
    let Some(files) = sources.load_few_having(function, FILES) else {
        return true;
    };
    sources.of(&files).iter().any(|source| {
        let nodes = all(source.syntax.root()).into_iter();
        nodes.filter(|it| it.kind() == "assignment").any(|it| {
            let target = it.child_by_field_name("left");
            target.is_some_and(|it| {
                let name = it.child_by_field_name("attribute");
                name.is_some_and(|name| source.syntax.of(name) == function)
            })
        })
    })
}

/// The files that have the owner's name, and that of its class.
fn files(owner: &Owner<'_>, sources: &mut Sources) -> Option<Vec<String>> {
    let mut files = sources.load_few_having(owner.name(), FILES)?;
    if let Named::Attribute { class, .. } = owner.named {
        files.extend(sources.load_few_having(class, FILES)?);
        files.sort_unstable();
        files.dedup();
    }
    Some(files)
}

impl<'s> Search<'_, 's> {
    /// The expressions that add to it.
    fn adding(&self, grows: Grows) -> Result<Vec<(Source<'s>, Node<'s>)>, Unknown> {
        self.check_owner()?;
        let mut found = Vec::new();
        for &source in self.sources {
            for node in all(source.syntax.root()) {
                if let Some(name) = self.mention(source, node)?
                    && let Some(adds) = self.added(source.syntax, name, grows)?
                {
                    found.push((source, adds));
                }
            }
        }
        found.dedup_by(|(one, a), (other, b)| one.file == other.file && a == b);
        Ok(found)
    }

    /// The expression that adds to it where it is named, if one does.
    fn added(
        &self,
        syntax: &'s Syntax,
        name: Node<'s>,
        grows: Grows,
    ) -> Result<Option<Node<'s>>, Unknown> {
        let (whole, keys) = whole(syntax, name);
        let mut both = keys.iter().zip(&self.owner.keys);
        if both.any(|(key, wanted)| same_key(syntax, *key, wanted) == Some(false)) {
            return Ok(None);
        }
        let more = keys.len() as isize - self.owner.keys.len() as isize;
        match used(syntax, whole, more, grows) {
            Use::Adds(node) => Ok(Some(node)),
            Use::Reads => Ok(None),
            Use::Unknown => Err(Unknown),
        }
    }

    /// Whether all that its name stands for can be known.
    fn check_owner(&self) -> Result<(), Unknown> {
        let is_known = match self.owner.named {
            Named::Attribute { name, .. } => {
                let (names, is_whole) = &self.family;
                let is_module = names.iter().any(|it| it.ends_with("Module"));
                *is_whole && !(name.starts_with('_') && is_module)
            }
            Named::Object { .. } => false,
            Named::Global { .. } => {
                let mut own = self.sources.iter().filter(|it| self.is_own_file(it.file));
                own.next()
                    .is_some_and(|it| it.is_cell || own.next().is_none())
            }
            Named::Local { file, .. } => {
                let mut own = self.sources.iter();
                let is_it = |it: &&Source<'_>| it.file.rsplit(['/', '\\']).next() == Some(file);
                own.by_ref()
                    .find(is_it)
                    .is_some_and(|it| self.function(it.syntax).is_some())
                    && own.find(is_it).is_none()
            }
        };
        match is_known {
            true => Ok(()),
            false => Err(Unknown),
        }
    }
}
