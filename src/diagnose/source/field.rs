//! Fields of classes that have their `__init__` made for them, as data classes do.

use tree_sitter::Node;

use super::descriptor::derived;
use super::family::{bases, class_source, decorators};
use super::held::last_part;
use super::sources::Source;
use super::stores::is_constant;
use super::syntax::{Syntax, all, children, is_named};
use crate::capture::ClassSource;
use crate::diagnose::case::short;

/// `name: type` in the body of such a class.
pub struct Field<'s, 'c> {
    pub node: Node<'s>,
    /// Its place among the fields of its class, if it can be counted.
    position: Option<usize>,
    pub class: &'c ClassSource,
    pub source: Source<'s>,
}

/// The field of an attribute, of a class of the object that has it.
pub fn declared<'s, 'c>(
    sources: &[Source<'s>],
    attribute: &str,
    owner: &'c [ClassSource],
) -> Option<Field<'s, 'c>> {
    sources.iter().find_map(|&source| {
        let classes = all(source.syntax.root()).into_iter();
        classes
            .filter(|node| node.kind() == "class_definition")
            .find_map(|class| field_of(source, class, attribute, owner))
    })
}

fn field_of<'s, 'c>(
    source: Source<'s>,
    class: Node<'s>,
    attribute: &str,
    owner: &'c [ClassSource],
) -> Option<Field<'s, 'c>> {
    let known = class_source(owner, source, class)?;
    let fields = fields(class);
    let position = fields.iter().position(|field| {
        let target = field.child_by_field_name("left");
        target.is_some_and(|target| source.syntax.of(target) == attribute)
    })?;
    let has_bases = !bases(class).is_empty();
    let is_made = decorators(source.syntax, class).next().is_some() || has_bases;
    let body = class.child_by_field_name("body")?;
    let has_own = children(body)
        .into_iter()
        .any(|node| is_named(source.syntax, node, "__init__"));
    (is_made && !has_own).then_some(Field {
        node: fields[position],
        position: (!has_bases).then_some(position),
        class: known,
        source,
    })
}

fn fields(class: Node<'_>) -> Vec<Node<'_>> {
    let body = class.child_by_field_name("body").map(children);
    let parts = body.unwrap_or_default().into_iter();
    parts
        .filter_map(|statement| statement.named_child(0))
        .filter(|node| node.kind() == "assignment" && node.child_by_field_name("type").is_some())
        .collect()
}

impl Field<'_, '_> {
    /// True if `__init__` may store an object in it: its default, or what a call in some files gives.
    pub fn may_store(&self, sources: &[Source<'_>]) -> bool {
        let syntax = self.source.syntax;
        let Some(value) = self.node.child_by_field_name("right") else {
            return true;
        };
        let arguments = value.child_by_field_name("arguments").map(children);
        let option = |name: &str| {
            let mut all = arguments.iter().flatten();
            let found = all.find(|it| keyword(syntax, **it) == Some(name));
            found.and_then(|it| it.child_by_field_name("value"))
        };
        let is_left_out = option("init").is_some_and(|it| syntax.of(it) == "False");
        let has_factory = option("default_factory").or(option("factory")).is_some();
        let default = match arguments {
            None => Some(value),
            Some(_) => option("default"),
        };
        match default {
            Some(default) if is_constant(Some(default)) => {
                !is_left_out && sources.iter().any(|it| self.is_given_in(*it, sources))
            }
            Some(_) => true,
            // Required, or in a way that is not known.
            None => !is_left_out || has_factory,
        }
    }

    /// True if a call in a file may give it a value.
    fn is_given_in(&self, source: Source<'_>, sources: &[Source<'_>]) -> bool {
        let target = self.node.child_by_field_name("left");
        let name = target.map_or("", |target| self.source.syntax.of(target));
        let mut classes = derived(sources, short(&self.class.name));
        classes.extend(["cls", "__class__", "type(self)"]);
        let syntax = source.syntax;
        let mut calls = all(syntax.root()).into_iter();
        calls.any(|call| {
            let function = call.child_by_field_name("function");
            let arguments = call.child_by_field_name("arguments").map(children);
            let (Some(function), Some(arguments)) = (function, arguments) else {
                return false;
            };
            let (named, placed): (Vec<_>, Vec<_>) = arguments
                .into_iter()
                .partition(|it| it.kind() == "keyword_argument");
            // The `__init__` of attrs leaves underscores at the beginning out.
            let is_named = named.into_iter().any(|it| {
                let word = keyword(syntax, it);
                word == Some(name) || word == Some(name.trim_start_matches('_'))
            });
            let has_any = placed.iter().any(|it| it.kind().ends_with("_splat"));
            let is_reached = placed.len() > self.position.unwrap_or(0);
            let is_its = classes.contains(&last_part(syntax.of(function)));
            is_named || is_its && (has_any || is_reached)
        })
    }
}

/// The name of a keyword argument.
fn keyword<'s>(syntax: &'s Syntax, argument: Node<'_>) -> Option<&'s str> {
    let is_keyword = argument.kind() == "keyword_argument";
    let name = argument.child_by_field_name("name").filter(|_| is_keyword);
    name.map(|name| syntax.of(name))
}
