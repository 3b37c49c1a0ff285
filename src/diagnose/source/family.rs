//! A class with those that it is derived from and those that are derived from it.

use tree_sitter::Node;

use super::held::last_part;
use super::sources::Source;
use super::syntax::{Syntax, all, children, is_named, lines};
use crate::capture::ClassSource;
use crate::diagnose::case::short;

/// Bases whose instances cannot be referred to weakly.
pub const NOT_REFERABLE: [&str; 6] = ["int", "tuple", "bytes", "IntEnum", "IntFlag", "NamedTuple"];
/// What makes such a class.
const MADE: [&str; 4] = ["namedtuple(", "NamedTuple(", "IntEnum(", "IntFlag("];
/// Bases that do nothing with an object.
const PLAIN: [&str; 4] = ["object", "ABC", "Generic", "Protocol"];

/// What is known of the classes whose objects may have an attribute.
#[derive(Default)]
pub struct Family {
    /// Those of the file.
    pub names: Vec<String>,
    /// Bases that the file does not define.
    pub bases: Vec<String>,
    pub is_decorated: bool,
}

impl Family {
    /// The family of a class.
    ///
    /// # Errors
    /// Why its objects may not be weakly referable.
    pub fn of<'a>(syntax: &'a Syntax, class: Node<'a>) -> Result<Self, String> {
        let mut family = Self::default();
        let mut pending = vec![class];
        let mut seen: Vec<Node<'a>> = Vec::new();
        while let Some(class) = pending.pop() {
            if seen.contains(&class) {
                continue;
            }
            seen.push(class);
            family.names.push(name_of(syntax, class).to_owned());
            family.is_decorated |= decorators(syntax, class).next().is_some();
            refuse_slots(syntax, class)?;
            pending.extend(derived_from(syntax, class));
            for base in bases(class) {
                let own: Vec<Node<'a>> = defined(syntax, last_part(syntax.of(base)));
                if own.is_empty() {
                    family.add_base(syntax, base)?;
                }
                pending.extend(own);
            }
        }
        Ok(family)
    }

    fn add_base(&mut self, syntax: &Syntax, base: Node<'_>) -> Result<(), String> {
        let text = syntax.of(base);
        let generic = text.split('[').next().unwrap_or_default();
        let name = last_part(generic);
        // `Point = namedtuple("Point", "x y")`
        let is_one = |value: &str| NOT_REFERABLE.contains(&last_part(value));
        let is_made = syntax
            .bindings(syntax.root(), name)
            .iter()
            .filter_map(|node| assigned(syntax, *node))
            .any(|value| MADE.iter().any(|made| value.contains(made)) || is_one(value));
        if base.kind() == "call" || is_made || NOT_REFERABLE.contains(&name) {
            return Err(format!("instances of `{text}` take no weak references"));
        }
        let is_known = base.kind() == "keyword_argument" && generic.ends_with("ABCMeta");
        if !is_known && !PLAIN.contains(&name) {
            self.bases.push(generic.to_owned());
        }
        Ok(())
    }
}

/// The text of what an assignment gives a variable.
fn assigned<'a>(syntax: &'a Syntax, variable: Node<'a>) -> Option<&'a str> {
    let assignment = variable.parent().filter(|it| it.kind() == "assignment")?;
    Some(syntax.of(assignment.child_by_field_name("right")?))
}

fn refuse_slots(syntax: &Syntax, class: Node<'_>) -> Result<(), String> {
    let has_slots = !syntax.bindings(class, "__slots__").is_empty()
        || decorators(syntax, class).any(|text| text.contains("slot"));
    // `record = partial(dataclass, slots=True)`
    let is_made = |text: &str| {
        let name: String = text
            .trim_start_matches('@')
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        syntax
            .bindings(syntax.root(), &name)
            .iter()
            .any(|node| assigned(syntax, *node).is_some_and(|value| value.contains("slots")))
    };
    if has_slots || decorators(syntax, class).any(is_made) {
        return Err("a class with `__slots__` may have no room for weak references".into());
    }
    Ok(())
}

/// The decorators of a function or class.
pub fn decorators<'a>(syntax: &'a Syntax, definition: Node<'a>) -> impl Iterator<Item = &'a str> {
    let around = definition.parent();
    let decorated = around.filter(|node| node.kind() == "decorated_definition");
    let found = decorated.map(children).unwrap_or_default();
    found
        .into_iter()
        .filter(|node| node.kind() == "decorator")
        .map(|node| syntax.of(node))
}

/// The classes of a file with a name.
pub fn defined<'a>(syntax: &'a Syntax, name: &str) -> Vec<Node<'a>> {
    let own = syntax.bindings(syntax.root(), name).into_iter();
    own.filter_map(|node| node.parent())
        .filter(|node| node.kind() == "class_definition")
        .collect()
}

/// The bases of a class, as they are written.
pub fn bases(class: Node<'_>) -> Vec<Node<'_>> {
    let list = class.child_by_field_name("superclasses");
    list.map(children).unwrap_or_default()
}

/// The classes of a file that name a class among their bases.
pub fn derived_from<'a>(syntax: &'a Syntax, class: Node<'a>) -> impl Iterator<Item = Node<'a>> {
    let name = name_of(syntax, class);
    let classes = all(syntax.root()).into_iter();
    classes
        .filter(|node| node.kind() == "class_definition")
        .filter(move |&node| {
            let mut names = bases(node).into_iter();
            names.any(|base| last_part(syntax.of(base)) == name)
        })
}

/// The name of a class; nothing for another node.
pub fn name_of<'a>(syntax: &'a Syntax, class: Node<'a>) -> &'a str {
    let name = class.child_by_field_name("name");
    name.map_or("", |name| syntax.of(name))
}

/// True if a class of a file is one of those.
pub fn is_one_of(classes: &[ClassSource], source: Source<'_>, class: Node<'_>) -> bool {
    class_source(classes, source, class).is_some()
}

/// What is known of a class of a file.
pub fn class_source<'c>(
    classes: &'c [ClassSource],
    source: Source<'_>,
    class: Node<'_>,
) -> Option<&'c ClassSource> {
    let file_name = |file: &str| file.rsplit(['/', '\\']).next().map(str::to_owned);
    let (first, last) = lines(class);
    classes.iter().find(|known| {
        let file = known.file.as_deref();
        let is_within = |&line: &u32| (first..=last).contains(&(line as usize));
        is_named(source.syntax, class, short(&known.name))
            && file.is_none_or(|file| file_name(file) == file_name(source.file))
            && known.line.as_ref().is_none_or(is_within)
    })
}
