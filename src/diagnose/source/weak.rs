//! A closure over `self`, or a bound method, that is kept as an attribute of `self`: it takes a weak reference.

use tree_sitter::Node;

use super::attribute::{is_called, only_called};
use super::change::{Candidate, Change, Place, Subject};
use super::edit::Edit;
use super::family::{Family, decorators};
use super::held::is_first;
use super::import::weakref_ref;
use super::signs::shows_locals;
use super::syntax::{
    Syntax, all, around, children, is_field, line_indentation, lines, scope, statement,
};
use super::uses::also_captured;

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

/// The references to its owner that an attribute of `self` gets in this file, of those that are meant by their name and
/// places: the change of each takes a look at the whole file.
pub fn candidates(
    syntax: &Syntax,
    is_meant: impl Fn(&str, &[Vec<(usize, usize)>]) -> bool,
) -> Vec<Candidate> {
    let nodes = all(syntax.root()).into_iter();
    let stores = nodes.filter(|node| node.kind() == "assignment");
    let stores = stores.filter_map(|node| Store::of(syntax, node));
    let meant = stores.filter_map(|store| {
        let places = store.places()?;
        is_meant(store.attribute, &places).then(|| store.candidate(places))?
    });
    meant.collect()
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

    /// What a line may name to mean it; `None` for what is no function.
    fn places(&self) -> Option<Vec<Vec<(usize, usize)>>> {
        let kept = match self.value.kind() {
            "lambda" => Vec::new(),
            "identifier" => vec![lines(self.inner_function()?)],
            "attribute" => {
                let name = self.value.child_by_field_name("attribute")?;
                let line = lines(self.method_named(self.syntax.of(name))?).0;
                vec![(line, line)]
            }
            _ => return None,
        };
        Some(vec![vec![lines(self.assignment)], kept, self.class_lines()])
    }

    fn candidate(&self, places: Vec<Vec<(usize, usize)>>) -> Option<Candidate> {
        let mut bound = None;
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
                    ("the lambda", self.in_lambda(body, &uses))
                }
            }
            "identifier" => {
                let function = self.inner_function()?;
                ("the function", self.in_function(function))
            }
            "attribute" => {
                let name = self.value.child_by_field_name("attribute")?;
                let object = self.value.child_by_field_name("object")?;
                if self.syntax.of(object) != self.owner || object.kind() != "identifier" {
                    return None;
                }
                bound = Some(self.syntax.of(name).to_owned());
                ("the method", self.in_bound_method(self.syntax.of(name)))
            }
            _ => return None,
        };
        let change = change
            .and_then(|edits| Ok((edits, self.checked(bound)?)))
            .map(|(edits, subject)| Change {
                summary: format!(
                    "Let {what} in `{}.{}` hold `{}` through a weak reference.",
                    self.owner, self.attribute, self.owner
                ),
                edits,
                subject: Some(subject),
            });
        Some(Candidate {
            name: self.attribute.to_owned(),
            line: lines(self.assignment).0,
            places,
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
        let of_instances = !decorators(self.syntax, method).any(makes_no_bound_method);
        of_instances.then_some(method)
    }

    fn in_lambda(&self, body: Node<'a>, uses: &[Node<'a>]) -> Result<Vec<Edit>, String> {
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
        if let [only] = uses
            && is_first(body, *only)
        {
            let (reference, mut edits) = self.reference(self.assignment)?;
            edits.push(Edit {
                range: only.byte_range(),
                text: format!("{reference}()"),
            });
            return Ok(edits);
        }
        self.as_function()
    }

    /// The lambda as a function that holds its owner while it runs.
    fn as_function(&self) -> Result<Vec<Edit>, String> {
        let syntax = self.syntax;
        let body = self.value.child_by_field_name("body");
        let body = body.ok_or("the lambda has no body")?;
        let is_enclosed = matches!(body.kind(), "parenthesized_expression" | "tuple");
        let body = syntax.of(body);
        let parameters = self.value.child_by_field_name("parameters");
        let parameters = parameters.map_or("", |list| syntax.of(list));
        let (reference, mut edits) = self.reference(self.assignment)?;
        let place = statement(self.assignment);
        let indentation = syntax.indentation(place).unwrap_or_default();
        let inner = format!("{indentation}{}", self.indentation_unit());
        let name = self.function_name();
        let end = syntax.newline();
        let (open, close) = match body.contains('\n') && !is_enclosed {
            true => ("(", ")"),
            false => ("", ""),
        };
        edits.push(Edit::insert(
            syntax.line_start(place.start_byte()),
            format!(
                "{end}{indentation}def {name}({parameters}):{end}{inner}{owner} = {reference}(){end}{inner}return \
                 {open}{body}{close}{end}{end}",
                owner = self.owner,
            ),
        ));
        edits.push(Edit {
            range: self.value.byte_range(),
            text: name,
        });
        Ok(edits)
    }

    /// By how much a block is indented more than the one around.
    fn indentation_unit(&self) -> &'a str {
        let outer = line_indentation(self.syntax, self.class);
        let inner = line_indentation(self.syntax, self.method);
        inner
            .strip_prefix(outer)
            .filter(|unit| !unit.is_empty())
            .unwrap_or("    ")
    }

    /// A name for the function: that of the attribute, if it is free.
    fn function_name(&self) -> String {
        let name = self.attribute;
        let is_free =
            self.syntax.variables(self.syntax.root(), name).is_empty() && !name.starts_with("__");
        if is_free {
            return name.to_owned();
        }
        self.syntax
            .new_name(&format!("call_{}", name.trim_start_matches('_')))
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
        let place = statement(before);
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

    /// What others must do no more with than call it, unless somebody could notice the change.
    fn checked(&self, method: Option<String>) -> Result<Subject, String> {
        let family = Family::of(self.syntax, self.class)?;
        self.refuse_place()?;
        self.refuse_names()?;
        let attribute = self.attribute;
        let mut subject = Subject {
            attribute: attribute.to_owned(),
            classes: family.names,
            bases: family.bases,
            is_decorated: family.is_decorated,
            method,
            links: Vec::new(),
            unlike: Vec::new(),
        };
        let uses = only_called(self.syntax, &subject, Place::Own)?;
        (subject.links, subject.unlike) = (uses.links, uses.unlike);
        if !is_called(self.syntax, attribute) {
            return Err(format!("nothing in this file calls `{attribute}`"));
        }
        Ok(subject)
    }

    /// Refuses an attribute that has another name elsewhere, or that the class itself has, such as a descriptor; and a
    /// method in which a new variable is seen.
    fn refuse_names(&self) -> Result<(), String> {
        let attribute = self.attribute;
        if attribute.starts_with("__") && !attribute.ends_with("__") {
            return Err(format!(
                "`{attribute}` has another name outside of the class"
            ));
        }
        let nodes = all(self.method);
        let shown = nodes.iter().find(|&&node| {
            node.kind() == "identifier" && shows_locals(self.syntax, node, self.syntax.of(node))
        });
        if let Some(shown) = shown {
            let (word, line) = (self.syntax.of(*shown), lines(*shown).0);
            return Err(format!(
                "line {line} shows all variables of the method (`{word}`)"
            ));
        }
        let is_value = |node: &Node<'a>| {
            let parent = node.parent().filter(|it| it.kind() == "assignment");
            let value = parent.and_then(|it| it.child_by_field_name("right"));
            value.is_some_and(|value| value.kind() != "none")
        };
        let bindings = self.syntax.bindings(self.class, attribute);
        if bindings.iter().any(is_value) {
            return Err(format!(
                "the class has `{attribute}` too, which may do more with it"
            ));
        }
        Ok(())
    }

    /// Refuses a store that is more than an assignment to an attribute of an instance.
    fn refuse_place(&self) -> Result<(), String> {
        let syntax = self.syntax;
        let is_chained = |node: Node<'a>| {
            node.parent()
                .is_some_and(|parent| parent.kind() == "assignment")
        };
        if is_chained(self.assignment) {
            return Err("the statement assigns it to something else too".into());
        }
        let method = self.method.child_by_field_name("name");
        let of_class = method.is_some_and(|name| OF_CLASSES.contains(&syntax.of(name)))
            || decorators(syntax, self.method).any(|decorator| {
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
        // A function in it may have one of its own: `self = self_ref()`. Or it says `nonlocal self`.
        let declares = |node: &Node<'a>| {
            node.kind() == "nonlocal_statement"
                && children(*node)
                    .iter()
                    .any(|it| syntax.of(*it) == self.owner)
        };
        let is_shared = all(self.method).iter().any(declares);
        let is_own = |node: &Node<'a>| is_shared || scope(*node) == Some(self.method);
        if rebound.iter().any(|node| elsewhere(node) && is_own(node)) {
            return Err(format!("`{}` is assigned again", self.owner));
        }
        let is_definition = |node: &Node<'a>| {
            node.parent().is_some_and(|parent| {
                parent.kind() == "function_definition" && is_field(parent, "name", *node)
            })
        };
        // `def on_step(): …; self.on_step = on_step`
        let stored = self.inner_function();
        let is_other = |node: &Node<'a>| is_definition(node) && node.parent() != stored;
        let attribute = self.attribute;
        if syntax
            .bindings(syntax.root(), attribute)
            .iter()
            .any(is_other)
        {
            return Err(format!("`{attribute}` is also a function or property"));
        }
        Ok(())
    }
}
