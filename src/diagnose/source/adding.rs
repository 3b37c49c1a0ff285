//! The lines of the program that add to what grows, found by the name that a report gives its owner.

use std::path::Path;

use tree_sitter::Node;

use super::container::{added, key_of, same_key};
use super::family::{bases, defined, name_of};
use super::files::module_name;
use super::held::last_part;
use super::reference::{shown, stands_for};
use super::sources::{Program, Source, Sources};
use super::stores::{bound_by, is_called, is_constant};
use super::syntax::{Syntax, all, around, is_named, lines, scope};
use super::written::{Own, own_object};
use crate::diagnose::case::short;
use crate::model::source::SourceLines;

/// So many lines are named at most where several may add to it.
const LINES: usize = 3;
/// Methods that give the container behind a key, which they may make.
const GETTERS: [&str; 2] = ["setdefault", "get"];
/// So many classes are looked for from which one derives.
const CLASSES: usize = 64;
/// Classes of the standard library without attributes of their own.
const ROOTS: [&str; 4] = ["object", "ABC", "Protocol", "Generic"];

/// What grows: a variable or an attribute, or what is behind these keys of it.
#[derive(Debug, PartialEq)]
struct Owner<'a> {
    named: Named<'a>,
    keys: Vec<&'a str>,
}

#[derive(Debug, PartialEq)]
enum Named<'a> {
    Global {
        module: &'a str,
        name: &'a str,
    },
    Local {
        function: &'a str,
        file: &'a str,
        line: usize,
        name: &'a str,
    },
    Attribute {
        class: &'a str,
        name: &'a str,
    },
}

/// The lines of a program that add to an owner, or replace it by what is made of it; none if these may not be all, or are
/// too many to be named.
pub fn adding(owner: &str, program: &Program) -> Vec<SourceLines> {
    let Some(owner) = Owner::parse(owner) else {
        return Vec::new();
    };
    let mut sources = Sources::new(program);
    let Some(mut files) = sources.load_all_having(&[owner.name()]) else {
        return Vec::new();
    };
    if let Named::Attribute { class, .. } = owner.named {
        let Some(others) = sources.load_all_having(&[class]) else {
            return Vec::new();
        };
        files.extend(others);
        files.sort_unstable();
        files.dedup();
    }
    let all = sources.of(&files);
    let mut found: Vec<(Source<'_>, Node<'_>)> = all
        .iter()
        .flat_map(|&source| {
            owner
                .in_file(source, &all)
                .into_iter()
                .map(move |it| (source, it))
        })
        .collect();
    found.dedup_by_key(|(source, node)| (source.file, lines(*node).0));
    if found.len() > LINES || !owner.is_known(&found, &all) {
        return Vec::new();
    }
    let shown = found
        .iter()
        .map(|(source, node)| shown(source.syntax, *node, source.file));
    shown.collect::<Option<_>>().unwrap_or_default()
}

impl<'a> Owner<'a> {
    /// Takes a name such as ``local `t` in `main`, train.py:20, thread MainThread (Trainer) → .meters (dict) → ['loss']``
    /// apart; `None` for one of another form.
    fn parse(owner: &'a str) -> Option<Self> {
        let mut parts: Vec<&str> = owner.split(" → ").collect();
        let mut keys = Vec::new();
        while let Some(key) = parts.pop_if(|part| part.starts_with('[')) {
            keys.push(key.rsplit_once(" (").map_or(key, |(key, _)| key));
        }
        keys.reverse();
        let last = parts.pop()?;
        let named = match (last.strip_prefix('.'), parts.last()) {
            (Some(attribute), Some(holder)) => {
                let (_, noun) = holder.strip_suffix(')')?.rsplit_once('(')?;
                let class = noun.strip_prefix("class ").unwrap_or(noun);
                let is_class = |it: &&str| !it.contains([' ', ',']);
                Named::Attribute {
                    class: Some(short(class)).filter(is_class)?,
                    name: attribute.split(' ').next()?,
                }
            }
            (None, Some(module)) if parts.len() == 1 => Named::Global {
                module: module.strip_prefix("module `")?.strip_suffix('`')?,
                name: last.strip_prefix('`')?.split('`').next()?,
            },
            (None, None) => {
                let (name, rest) = last.strip_prefix("local `")?.split_once("` in `")?;
                let (function, place) = rest.split_once("`, ")?;
                let (file, rest) = place.split_once(':')?;
                let end = rest
                    .find(|it: char| !it.is_ascii_digit())
                    .unwrap_or(rest.len());
                Named::Local {
                    function: short(function),
                    file,
                    line: rest[..end].parse().ok()?,
                    name,
                }
            }
            _ => return None,
        };
        Some(Self { named, keys })
    }

    fn name(&self) -> &'a str {
        match self.named {
            Named::Global { name, .. }
            | Named::Local { name, .. }
            | Named::Attribute { name, .. } => name,
        }
    }

    /// False for an attribute to which the code of a library may add: where nothing but other objects' code does in the
    /// program, that may be about another attribute of the name.
    fn is_known(&self, found: &[(Source<'_>, Node<'_>)], sources: &[Source<'_>]) -> bool {
        let Named::Attribute { class, name } = self.named else {
            return true;
        };
        let is_whole = ancestors(class, sources).is_some_and(|(_, is_whole)| is_whole);
        is_whole
            || found.iter().any(|(source, node)| {
                let syntax = source.syntax;
                all(*node).into_iter().any(|it| {
                    it.kind() == "attribute"
                        && is_called(syntax, it, name)
                        && self.is_own(syntax, it, sources) == Some(true)
                })
            })
    }

    /// Whether an attribute of the name is of the object that a method of a class has: of the owner's class, or of another.
    fn is_own(&self, syntax: &Syntax, attribute: Node<'_>, sources: &[Source<'_>]) -> Option<bool> {
        let Named::Attribute { class, .. } = self.named else {
            return None;
        };
        let holder = attribute.child_by_field_name("object")?;
        let base = match own_object(syntax, attribute, syntax.of(holder)) {
            Own::Object(own) | Own::Class(own) => name_of(syntax, own),
            // `Other.items`
            Own::No => {
                let name = syntax.of(holder);
                let mut all = sources.iter();
                all.any(|it| !defined(it.syntax, name).is_empty())
                    .then_some(name)?
            }
        };
        Some(derives(class, base, sources))
    }

    /// What adds to it in a file, the expressions in their order.
    fn in_file<'s>(&self, source: Source<'s>, sources: &[Source<'s>]) -> Vec<Node<'s>> {
        if !self.may_be_in(source, sources) {
            return Vec::new();
        }
        let syntax = source.syntax;
        let nodes = all(syntax.root());
        // A variable that has the container is as good as its name.
        let aliases: Vec<Node<'s>> = nodes
            .iter()
            .filter(|it| it.kind() == "assignment")
            .filter(|it| {
                let value = it.child_by_field_name("right");
                value.is_some_and(|value| self.is_it(source, sources, value))
            })
            .filter_map(|it| it.child_by_field_name("left"))
            .filter(|it| it.kind() == "identifier")
            .collect();
        let is_alias = |container: Node<'s>| {
            container.kind() == "identifier"
                && aliases.iter().any(|it| {
                    syntax.of(*it) == syntax.of(container) && scope(*it) == scope(container)
                })
        };
        let adds = |node: &Node<'s>| {
            if let Some((container, value)) = added(syntax, *node) {
                return !is_constant(value)
                    && (self.is_it(source, sources, container) || is_alias(container));
            }
            self.is_remade(source, sources, *node)
        };
        nodes.into_iter().filter(adds).collect()
    }

    /// True for an assignment to it of what is made of it: `past = torch.cat([past, new])`.
    fn is_remade(&self, source: Source<'_>, sources: &[Source<'_>], node: Node<'_>) -> bool {
        if node.kind() != "assignment" {
            return false;
        }
        let target = node.child_by_field_name("left");
        let target = target.filter(|it| self.is_it(source, sources, *it));
        let value = target.and_then(bound_by).and_then(|(_, value)| value);
        let is_it = |part: Node<'_>| self.is_it(source, sources, part);
        value.is_some_and(|value| all(value).into_iter().any(is_it))
    }

    /// False for a file that has no variable of the owner's.
    fn may_be_in(&self, source: Source<'_>, sources: &[Source<'_>]) -> bool {
        let binds = |source: &Source<'_>, name| {
            let bindings = source.syntax.bindings(source.syntax.root(), name);
            bindings.into_iter().any(|it| scope(it).is_none())
        };
        match self.named {
            Named::Attribute { .. } => true,
            Named::Local { file, .. } => source.file.rsplit(['/', '\\']).next() == Some(file),
            Named::Global {
                module: "__main__",
                name,
            } => {
                // Any file may be the script: the only one that has such a variable, or the cells of a notebook.
                let mut others = sources.iter().filter(|it| it.file != source.file);
                source.is_cell || binds(&source, name) && !others.any(|it| binds(it, name))
            }
            Named::Global { module, name } if is_elsewhere(source, module) => {
                let module = last_part(module);
                let is_import = |it: &Node<'_>| {
                    let import = around(*it, &["import_from_statement"]);
                    let from = import.and_then(|it| it.child_by_field_name("module_name"));
                    from.is_some_and(|it| last_part(source.syntax.of(it)) == module)
                };
                let syntax = source.syntax;
                let imports = syntax.bindings(syntax.root(), name);
                imports.iter().any(is_import) || syntax.has_word(module)
            }
            Named::Global { name, .. } => binds(&source, name),
        }
    }

    /// True for an expression that is the owner.
    fn is_it(&self, source: Source<'_>, sources: &[Source<'_>], expression: Node<'_>) -> bool {
        let syntax = source.syntax;
        let (mut at, mut keys) = (expression, Vec::new());
        loop {
            let (below, key) = match at.kind() {
                "subscript" => (at.child_by_field_name("value"), key_of(at)),
                "call" => {
                    let function = at.child_by_field_name("function");
                    let name = function.and_then(|it| it.child_by_field_name("attribute"));
                    if !name.is_some_and(|name| GETTERS.contains(&syntax.of(name))) {
                        break;
                    }
                    let arguments = at.child_by_field_name("arguments");
                    let below = function.and_then(|it| it.child_by_field_name("object"));
                    (below, arguments.and_then(|it| it.named_child(0)))
                }
                _ => break,
            };
            let (Some(below), Some(key)) = (below, key) else {
                return false;
            };
            keys.push(key);
            at = below;
        }
        keys.reverse();
        let same =
            |(key, wanted): (&Node<'_>, &&str)| same_key(syntax, *key, wanted) != Some(false);
        keys.len() == self.keys.len()
            && keys.iter().zip(&self.keys).all(same)
            && self.is_named(source, sources, at)
    }

    /// True for the variable or attribute itself.
    fn is_named(&self, source: Source<'_>, sources: &[Source<'_>], node: Node<'_>) -> bool {
        let syntax = source.syntax;
        match self.named {
            Named::Attribute { name, .. } => {
                if node.kind() != "attribute" || !is_called(syntax, node, name) {
                    return false;
                }
                self.is_own(syntax, node, sources) != Some(false)
            }
            Named::Global { module, name } if is_elsewhere(source, module) => {
                // `from module import name`, or `module.name`
                let module = last_part(module);
                match node.kind() {
                    "attribute" => {
                        let holder = node.child_by_field_name("object");
                        is_called(syntax, node, name)
                            && holder.is_some_and(|it| last_part(syntax.of(it)) == module)
                    }
                    _ => syntax.of(node) == name && stands_for(syntax, node, name, None),
                }
            }
            Named::Global { name, .. } => {
                syntax.of(node) == name
                    && syntax.is_variable(node)
                    && stands_for(syntax, node, name, None)
            }
            Named::Local {
                function,
                line,
                name,
                ..
            } => {
                syntax.of(node) == name && syntax.is_variable(node) && {
                    let mut functions = all(syntax.root()).into_iter().filter(|it| {
                        let (first, last) = lines(*it);
                        it.kind() == "function_definition"
                            && (first..=last).contains(&line)
                            && is_named(syntax, *it, function)
                    });
                    let innermost = functions.next_back();
                    innermost.is_some_and(|it| stands_for(syntax, node, name, Some(it)))
                }
            }
        }
    }
}

/// True for a file that is not a module's own.
fn is_elsewhere(source: Source<'_>, module: &str) -> bool {
    module != "__main__" && module_name(Path::new(source.file)) != last_part(module)
}

/// True if a class is another, or derives from it by what the files say.
fn derives(class: &str, base: &str, sources: &[Source<'_>]) -> bool {
    class == base
        || ancestors(class, sources).is_some_and(|(names, _)| names.iter().any(|it| it == base))
}

/// The names of a class and of those that it derives from, and whether the files have them all; `None` if they do not have
/// the class itself.
fn ancestors(class: &str, sources: &[Source<'_>]) -> Option<(Vec<String>, bool)> {
    let mut names = vec![class.to_owned()];
    let (mut at, mut is_whole) = (0, true);
    while let Some(name) = names.get(at).cloned() {
        let found: Vec<(&Syntax, Node<'_>)> = sources
            .iter()
            .flat_map(|it| {
                defined(it.syntax, &name)
                    .into_iter()
                    .map(move |class| (it.syntax, class))
            })
            .collect();
        if found.is_empty() {
            is_whole &= ROOTS.contains(&name.as_str());
            if at == 0 {
                return None;
            }
        }
        for base in found.iter().flat_map(|(syntax, class)| {
            let bases = bases(*class).into_iter();
            bases.map(|base| last_part(syntax.of(base)).to_owned())
        }) {
            if !names.contains(&base) && names.len() < CLASSES {
                names.push(base);
            }
        }
        at += 1;
    }
    Some((names, is_whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(owner: &str) -> Option<Owner<'_>> {
        Owner::parse(owner)
    }

    #[test]
    fn owners_are_taken_apart() {
        let local = "local `t` in `Main.run`, g1.py:20, thread MainThread";
        let named = |owner| parsed(owner).map(|it| (it.named, it.keys));
        assert_eq!(
            named(local),
            Some((
                Named::Local {
                    function: "run",
                    file: "g1.py",
                    line: 20,
                    name: "t"
                },
                vec![]
            ))
        );
        let attribute = |class, name, keys| Some((Named::Attribute { class, name }, keys));
        let whole = format!("{local} (Trainer) → .meters (dict) → ['loss']");
        assert_eq!(
            named(&whole),
            attribute("Trainer", "meters", vec!["['loss']"])
        );
        assert_eq!(
            named("module `m` → `S` (class a.S) → .all (list, 3 items)"),
            attribute("S", "all", vec![])
        );
        let global = Named::Global {
            module: "__main__",
            name: "OUT",
        };
        assert_eq!(named("module `__main__` → `OUT`"), Some((global, vec![])));
    }

    #[test]
    fn other_names_are_not_guessed_at() {
        assert_eq!(parsed("the process"), None);
        assert_eq!(
            parsed("module `m` → `f` (function f) → closure variable 'x'"),
            None
        );
        assert_eq!(parsed("running event loop → ._ready (deque) → [0]"), None);
        assert_eq!(parsed(""), None);
    }
}
