//! A closure over `self`, or a bound method, that is kept as an attribute of `self`: it takes a weak reference.

use tree_sitter::Node;

use super::change::{Candidate, Change};
use super::edit::Edit;
use super::syntax::{Syntax, all, around, children, is_field, lines, scope};
use super::uses::{also_captured, is_called, not_only_called};

/// Bases whose instances cannot be referred to weakly.
const NOT_REFERABLE: [&str; 6] = ["int", "tuple", "bytes", "IntEnum", "IntFlag", "NamedTuple"];
/// Methods whose first parameter is a class.
const OF_CLASSES: [&str; 3] = ["__new__", "__init_subclass__", "__class_getitem__"];
/// Parts of a function that run later than the function itself.
const LATER: [&str; 3] = ["lambda", "generator_expression", "yield"];

/// `self.attribute = value` in a method.
struct Store<'a> {
    syntax: &'a Syntax,
    assignment: Node<'a>,
    /// The name of the method's first parameter.
    owner: &'a str,
    attribute: &'a str,
    value: Node<'a>,
    method: Node<'a>,
    class: Node<'a>,
}

/// The references to its owner that an attribute of `self` gets in this file.
pub fn candidates(syntax: &Syntax) -> Vec<Candidate> {
    all(syntax.root())
        .into_iter()
        .filter(|node| node.kind() == "assignment")
        .filter_map(|node| Store::of(syntax, node)?.candidate())
        .collect()
}

impl<'a> Store<'a> {
    fn of(syntax: &'a Syntax, assignment: Node<'a>) -> Option<Self> {
        let target = assignment.child_by_field_name("left")?;
        let object = target.child_by_field_name("object")?;
        let mut value = assignment.child_by_field_name("right")?;
        if let ("parenthesized_expression", [inner]) = (value.kind(), &*children(value)) {
            value = *inner;
        }
        let method = scope(assignment).filter(|node| node.kind() == "function_definition")?;
        let class = scope(method).filter(|node| node.kind() == "class_definition")?;
        let first = *children(method.child_by_field_name("parameters")?).first()?;
        let first = if first.kind() == "typed_parameter" {
            first.named_child(0)?
        } else {
            first
        };
        let is_own = target.kind() == "attribute"
            && object.kind() == "identifier"
            && first.kind() == "identifier"
            && syntax.of(object) == syntax.of(first);
        is_own.then_some(Self {
            syntax,
            assignment,
            owner: syntax.of(first),
            attribute: syntax.of(target.child_by_field_name("attribute")?),
            value,
            method,
            class,
        })
    }

    fn candidate(&self) -> Option<Candidate> {
        let mut kept = Vec::new();
        let (what, change) = match self.value.kind() {
            "lambda" => {
                let body = self.value.child_by_field_name("body")?;
                let parameters = self.value.child_by_field_name("parameters");
                let named = |list| self.syntax.variables(list, self.owner).len();
                let bound = |list| self.syntax.bindings(list, self.owner).len();
                let uses = self.syntax.variables(body, self.owner);
                if parameters.is_some_and(|list| named(list) > bound(list)) {
                    let why = format!("a default argument holds `{}`", self.owner);
                    ("the lambda", Err(why))
                } else if uses.is_empty() || parameters.is_some_and(|list| bound(list) > 0) {
                    return None;
                } else {
                    ("the lambda", self.in_lambda(&uses))
                }
            }
            "identifier" => {
                let function = self.inner_function()?;
                kept.push(lines(function));
                ("the function", self.in_function(function))
            }
            "attribute" => {
                let name = self.value.child_by_field_name("attribute")?;
                let object = self.value.child_by_field_name("object")?;
                let method = self.method_named(self.syntax.of(name))?;
                if self.syntax.of(object) != self.owner || object.kind() != "identifier" {
                    return None;
                }
                kept.push((lines(method).0, lines(method).0));
                ("the method", self.in_bound_method(self.syntax.of(name)))
            }
            _ => return None,
        };
        let change = change
            .and_then(|edits| self.checked(edits))
            .map(|edits| Change {
                summary: format!(
                    "Let {what} in `{}.{}` hold `{}` through a weak reference.",
                    self.owner, self.attribute, self.owner
                ),
                edits,
                shared: Some((self.attribute.to_owned(), self.family())),
            });
        Some(Candidate {
            name: self.attribute.to_owned(),
            line: lines(self.assignment).0,
            places: vec![vec![lines(self.assignment)], kept, self.class_lines()],
            change,
        })
    }

    /// Where a report says that the class is: its own first line, or that of a method.
    fn class_lines(&self) -> Vec<(usize, usize)> {
        let body = self.class.child_by_field_name("body");
        let inside = body.map(children).unwrap_or_default();
        let definitions = inside
            .into_iter()
            .filter(|node| node.kind().ends_with("definition"));
        let inner = |node: Node<'a>| node.child_by_field_name("definition").unwrap_or(node);
        definitions
            .flat_map(|node| [node, inner(node)])
            .chain([self.class])
            .map(|node| (lines(node).0, lines(node).0))
            .collect()
    }

    fn class_name(&self) -> &'a str {
        let name = self.class.child_by_field_name("name");
        name.map_or("", |name| self.syntax.of(name))
    }

    /// The inner function that is assigned and uses the owner.
    fn inner_function(&self) -> Option<Node<'a>> {
        let name = self.syntax.of(self.value);
        let found: Vec<Node<'a>> = self
            .syntax
            .bindings(self.method, name)
            .into_iter()
            .filter_map(|node| node.parent())
            .collect();
        let [function] = found[..] else {
            return None;
        };
        let is_inner = function.kind() == "function_definition"
            && scope(function) == Some(self.method)
            && !self.syntax.variables(function, self.owner).is_empty();
        is_inner.then_some(function)
    }

    /// The method of the class with a name, if that is what an instance binds.
    fn method_named(&self, name: &str) -> Option<Node<'a>> {
        let body = self.class.child_by_field_name("body")?;
        let found: Vec<Node<'a>> = children(body)
            .into_iter()
            .filter_map(|node| match node.kind() {
                "decorated_definition" => node.child_by_field_name("definition"),
                _ => Some(node),
            })
            .filter(|node| node.kind() == "function_definition")
            .filter(|node| {
                let own = node.child_by_field_name("name");
                own.is_some_and(|own| self.syntax.of(own) == name)
            })
            .collect();
        let [method] = found[..] else {
            return None;
        };
        let makes_no_bound_method = |decorator: &str| {
            ["staticmethod", "classmethod", "property"]
                .iter()
                .any(|kind| decorator.contains(kind))
        };
        let of_instances = !self.decorators(method).any(makes_no_bound_method);
        of_instances.then_some(method)
    }

    fn decorators(&self, definition: Node<'a>) -> impl Iterator<Item = &'a str> {
        let around = definition.parent();
        let decorated = around.filter(|node| node.kind() == "decorated_definition");
        let found = decorated.map(children).unwrap_or_default();
        found
            .into_iter()
            .filter(|node| node.kind() == "decorator")
            .map(|node| self.syntax.of(node))
    }

    fn in_lambda(&self, uses: &[Node<'a>]) -> Result<Vec<Edit>, String> {
        let inner = |node: &Node<'a>| {
            node.is_named() && LATER.contains(&node.kind()) && *node != self.value
        };
        if all(self.value).iter().any(inner) {
            return Err("a function within the lambda may run when the object is gone".into());
        }
        if all(self.value)
            .iter()
            .any(|node| node.kind() == "named_expression")
        {
            return Err("the lambda assigns a variable".into());
        }
        let shows_text = |node: &Node<'a>| {
            around(*node, &["interpolation"]).is_some_and(|part| {
                let mut cursor = part.walk();
                part.children(&mut cursor).any(|child| child.kind() == "=")
            })
        };
        if uses.iter().any(shows_text) {
            return Err("an f-string shows the text of the expression".into());
        }
        self.refuse_captured(self.value)?;
        let (reference, mut edits) = self.reference(self.assignment)?;
        edits.extend(uses.iter().map(|node| Edit {
            range: node.byte_range(),
            text: format!("{reference}()"),
        }));
        Ok(edits)
    }

    fn in_function(&self, function: Node<'a>) -> Result<Vec<Edit>, String> {
        let syntax = self.syntax;
        let name = syntax.of(self.value);
        let inside = all(function);
        let runs_later = |node: &Node<'a>| matches!(node.kind(), "async" | "yield" | "await");
        if inside.iter().any(runs_later) {
            return Err(format!("`{name}` may run on when the object is gone"));
        }
        if function
            .parent()
            .is_some_and(|node| node.kind() == "decorated_definition")
        {
            return Err(format!("`{name}` is decorated"));
        }
        let rebinds = !syntax.bindings(function, self.owner).is_empty();
        let header = function.child_by_field_name("parameters");
        let in_header = header.is_some_and(|list| !syntax.variables(list, self.owner).is_empty());
        if rebinds || in_header {
            return Err(format!("`{name}` has a `{}` of its own", self.owner));
        }
        let other = |node: &&Node<'a>| {
            let is_called = node
                .parent()
                .is_some_and(|call| call.kind() == "call" && is_field(call, "function", **node));
            **node != self.value && !is_field(function, "name", **node) && !is_called
        };
        if let Some(other) = syntax.variables(self.method, name).iter().find(other) {
            let line = lines(*other).0;
            return Err(format!("`{name}` is also used in line {line}"));
        }
        self.refuse_captured(function)?;
        let body = function.child_by_field_name("body");
        let statements = body.map(children).unwrap_or_default();
        let is_docstring = |node: &&Node<'a>| {
            node.kind() == "expression_statement"
                && node
                    .named_child(0)
                    .is_some_and(|text| text.kind() == "string")
        };
        let place = match statements.first().filter(is_docstring) {
            Some(_) => statements.get(1),
            None => statements.first(),
        };
        let place = *place.ok_or_else(|| format!("`{name}` does nothing"))?;
        let indentation = syntax
            .indentation(place)
            .ok_or_else(|| format!("`{name}` is written in one line"))?;
        let (reference, mut edits) = self.reference(function)?;
        edits.push(Edit::insert(
            syntax.line_start(place.start_byte()),
            format!(
                "{indentation}{} = {reference}(){}",
                self.owner,
                syntax.newline()
            ),
        ));
        Ok(edits)
    }

    fn in_bound_method(&self, method: &str) -> Result<Vec<Edit>, String> {
        let replaced = all(self.syntax.root()).into_iter().any(|node| {
            node.kind() == "string_content" && self.syntax.of(node) == method
                || node.kind() == "attribute"
                    && node
                        .child_by_field_name("attribute")
                        .is_some_and(|name| self.syntax.of(name) == method)
                    && node.parent().is_some_and(|parent| {
                        is_field(parent, "left", node) && parent.kind() == "assignment"
                    })
        });
        if replaced {
            return Err(format!("`{method}` is itself replaced"));
        }
        let (reference, mut edits) = self.reference(self.assignment)?;
        edits.push(Edit {
            range: self.value.byte_range(),
            text: format!("lambda *args, **kwargs: {reference}().{method}(*args, **kwargs)"),
        });
        Ok(edits)
    }

    fn refuse_captured(&self, function: Node<'a>) -> Result<(), String> {
        for word in ["super", "__class__", "locals", "eval", "exec"] {
            if !self.syntax.variables(function, word).is_empty() {
                return Err(format!("the function uses `{word}`"));
            }
        }
        match also_captured(self.syntax, function, self.owner) {
            None => Ok(()),
            Some(name) => Err(format!(
                "the function also captures `{name}`, which may lead back to the object"
            )),
        }
    }

    /// The name of the weak reference, and the edits that make it before a statement.
    fn reference(&self, before: Node<'a>) -> Result<(String, Vec<Edit>), String> {
        let syntax = self.syntax;
        let place = super::syntax::statement(before);
        let indentation = syntax
            .indentation(place)
            .ok_or("the statement shares its line with another")?;
        let name = syntax.new_name(&format!("{}_ref", self.owner));
        let (callable, import) = weakref_ref(syntax, self.class)?;
        let mut edits: Vec<Edit> = import.into_iter().collect();
        edits.push(Edit::insert(
            syntax.line_start(place.start_byte()),
            format!(
                "{indentation}{name} = {callable}({}){}",
                self.owner,
                syntax.newline()
            ),
        ));
        Ok((name, edits))
    }

    /// The edits, unless somebody could notice them.
    fn checked(&self, edits: Vec<Edit>) -> Result<Vec<Edit>, String> {
        let syntax = self.syntax;
        self.refuse_class(self.class)?;
        let method = self.method.child_by_field_name("name");
        let of_class = method.is_some_and(|name| OF_CLASSES.contains(&syntax.of(name)))
            || self.decorators(self.method).any(|decorator| {
                ["staticmethod", "classmethod"]
                    .iter()
                    .any(|kind| decorator.contains(kind))
            });
        if of_class {
            return Err(format!("`{}` is not an instance", self.owner));
        }
        let parameters = self.method.child_by_field_name("parameters");
        let rebound = syntax.bindings(self.method, self.owner);
        let elsewhere = |node: &Node<'a>| {
            parameters.is_none_or(|list| !list.byte_range().contains(&node.start_byte()))
        };
        if rebound.iter().any(elsewhere) {
            return Err(format!("`{}` is assigned again", self.owner));
        }
        if !syntax.bindings(syntax.root(), "__del__").is_empty() || syntax.has_word("finalize") {
            return Err("a finalizer in this file would run earlier".into());
        }
        let is_definition = |node: &Node<'a>| {
            node.parent().is_some_and(|parent| {
                parent.kind() == "function_definition" && is_field(parent, "name", *node)
            })
        };
        let attribute = self.attribute;
        if syntax
            .bindings(syntax.root(), attribute)
            .iter()
            .any(is_definition)
        {
            return Err(format!("`{attribute}` is also a function or property"));
        }
        if let Some(why) = not_only_called(syntax, attribute) {
            return Err(why);
        }
        if !is_called(syntax, attribute) {
            return Err(format!("nothing in this file calls `{attribute}`"));
        }
        Ok(edits)
    }

    /// The class and those that it is derived from, by the last parts of their names.
    fn family(&self) -> Vec<String> {
        let bases = self.class.child_by_field_name("superclasses").map(children);
        let bases = bases.unwrap_or_default().into_iter();
        let names = bases.map(|base| self.syntax.of(base).rsplit('.').next().unwrap_or_default());
        names
            .filter(|name| *name != "object")
            .chain([self.class_name()])
            .map(str::to_owned)
            .collect()
    }

    /// The classes of this file that name a class among their bases.
    fn derived_from(&self, class: Node<'a>) -> impl Iterator<Item = Node<'a>> {
        let name = class.child_by_field_name("name");
        let name = name.map_or("", |name| self.syntax.of(name));
        let classes = all(self.syntax.root()).into_iter();
        classes
            .filter(|node| node.kind() == "class_definition")
            .filter(move |node| {
                let bases = node.child_by_field_name("superclasses").map(children);
                let mut names = bases.into_iter().flatten();
                names.any(|base| self.syntax.of(base).rsplit('.').next() == Some(name))
            })
    }

    /// Refuses classes whose instances may not be weakly referable.
    fn refuse_class(&self, class: Node<'a>) -> Result<(), String> {
        let syntax = self.syntax;
        let mut pending = vec![class];
        let mut seen: Vec<Node<'a>> = Vec::new();
        while let Some(class) = pending.pop() {
            if seen.contains(&class) {
                continue;
            }
            seen.push(class);
            let slots = !syntax.bindings(class, "__slots__").is_empty()
                || self.decorators(class).any(|text| text.contains("slot"));
            if slots {
                return Err("a class with `__slots__` may have no room for weak references".into());
            }
            let is_copied = ["replace", "evolve"]
                .iter()
                .any(|word| syntax.has_word(word));
            if is_copied && self.decorators(class).next().is_some() {
                return Err("a copy of an object would share what refers to it weakly".into());
            }
            pending.extend(self.derived_from(class));
            let Some(bases) = class.child_by_field_name("superclasses") else {
                continue;
            };
            for base in children(bases) {
                let name = syntax.of(base).rsplit('.').next().unwrap_or_default();
                if base.kind() == "call" || NOT_REFERABLE.contains(&name) {
                    return Err(format!(
                        "instances of `{}` take no weak references",
                        syntax.of(base)
                    ));
                }
                let own = syntax.bindings(syntax.root(), name).into_iter();
                pending.extend(
                    own.filter_map(|node| node.parent())
                        .filter(|node| node.kind() == "class_definition"),
                );
            }
        }
        Ok(())
    }
}

/// What to call for a weak reference, and the import of it if the file has none.
fn weakref_ref(syntax: &Syntax, class: Node<'_>) -> Result<(String, Option<Edit>), String> {
    let statements = children(syntax.root());
    let before = class.start_byte();
    for &statement in statements
        .iter()
        .take_while(|node| node.start_byte() < before)
    {
        let from = statement.child_by_field_name("module_name");
        for name in children(statement) {
            let (module, bound) = match name.kind() {
                "aliased_import" => (
                    name.child_by_field_name("name"),
                    name.child_by_field_name("alias"),
                ),
                _ => (Some(name), Some(name)),
            };
            let (Some(module), Some(bound)) = (module, bound) else {
                continue;
            };
            let (module, bound_name) = (syntax.of(module), syntax.of(bound));
            let callable = match (statement.kind(), from.map(|node| syntax.of(node))) {
                ("import_statement", _) if module == "weakref" => format!("{bound_name}.ref"),
                ("import_from_statement", Some("weakref")) if module == "ref" => {
                    bound_name.to_owned()
                }
                _ => continue,
            };
            if syntax.bindings(syntax.root(), bound_name).len() == 1 {
                return Ok((callable, None));
            }
        }
    }
    if !syntax.bindings(syntax.root(), "weakref").is_empty() {
        return Err("`weakref` has another meaning in this file".into());
    }
    let is_header = |node: &&Node<'_>| {
        let is_text = node.kind() == "expression_statement"
            && node
                .named_child(0)
                .is_some_and(|text| text.kind() == "string");
        is_text || node.kind() == "future_import_statement"
    };
    let header: Vec<&Node<'_>> = statements.iter().take_while(is_header).collect();
    let next = statements.get(header.len()).ok_or("the file is empty")?;
    let newline = syntax.newline();
    if syntax.indentation(*next).is_none() {
        return Err("the first statement shares its line with another".into());
    }
    let is_import = next.kind().starts_with("import");
    let text = match is_import {
        true => format!("import weakref{newline}"),
        false => format!("import weakref{newline}{newline}"),
    };
    let mut at = syntax.line_start(next.start_byte());
    if syntax.text()[at..].starts_with('\u{feff}') {
        at += '\u{feff}'.len_utf8();
    }
    Ok(("weakref.ref".into(), Some(Edit::insert(at, text))))
}
