//! What one function says about a reference: whether it makes it, of its own accord or of what it was given.

use pyo3::prelude::*;

use super::statements::{End, Statement, statements};
use crate::cpython::instructions::{Instruction, decode};
use crate::cpython::{Builtins, items, text_of};

/// What is called to put something into a container.
pub const PUTS: [&str; 9] = [
    "append",
    "add",
    "insert",
    "extend",
    "update",
    "setdefault",
    "appendleft",
    "put",
    "__setitem__",
];
/// What is called to set an attribute by its name.
const SETS: [&str; 6] = [
    "setattr",
    "__setattr__",
    "setdefault",
    "update",
    "add_module",
    "register_module",
];

/// A reference whose maker is looked for: from an object by an attribute.
pub struct Wanted<'a> {
    pub attribute: &'a str,
    /// What stores a new container with nothing in it has made the reference.
    pub may_be_empty: bool,
    /// The attribute is a container, and the reference is to what is in it.
    pub in_container: bool,
    /// It leads to the object itself.
    pub to_itself: bool,
    /// What it leads to refers to the object.
    pub leads_back: bool,
    /// The bound method that it leads to, if it does.
    pub method: Option<&'a str>,
    /// The container, if it may be what `locals()` gave to a method.
    pub locals: Option<Locals>,
    /// What it leads to, if it is to be seen that the same code has made that.
    pub target: Option<Target>,
}

/// An object of which it is asked who has made it.
#[derive(Default)]
pub struct Target {
    /// The name of its class; empty for a callable, whose class tells nothing.
    pub class: String,
    /// The addresses of its class and of the bases of that.
    pub classes: Vec<usize>,
    /// It is in a container that is in the attribute's.
    pub is_deep: bool,
}

/// A dict that has an object as `self`, as the local variables of a method do.
pub struct Locals {
    pub names: Vec<String>,
    /// The name of what leads back.
    pub name: String,
    /// The addresses of the classes of the object.
    pub classes: Vec<usize>,
}

/// What a function adds to a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    /// It stores a container that it was given.
    Taken,
    /// It stores what it was given.
    Given,
    /// It stores what it made, or its own object.
    Made,
}

/// A function that is asked about references.
pub struct Evidence<'b, 'c, 'py> {
    builtins: &'b Builtins,
    code: &'c Bound<'py, PyAny>,
    names: Vec<Bound<'py, PyAny>>,
    is_method: bool,
}

impl<'b, 'c, 'py> Evidence<'b, 'c, 'py> {
    pub fn new(builtins: &'b Builtins, code: &'c Bound<'py, PyAny>, is_method: bool) -> Self {
        let names = builtins.code_names.get(code);
        Self {
            builtins,
            code,
            names: names.as_ref().map_or_else(Vec::new, items),
            is_method,
        }
    }

    fn name(&self, index: usize) -> Option<String> {
        text_of(self.names.get(index)?)
    }

    fn index_of(&self, name: &str) -> Option<usize> {
        position(&self.names, name)
    }

    fn statements(&self) -> Vec<Statement> {
        statements(self.builtins, self.code, self.is_method).unwrap_or_default()
    }

    /// How the function makes the reference; `is_own` if it is of the class of the object that has it.
    pub fn of(&self, wanted: &Wanted<'_>, is_own: bool) -> Option<Strength> {
        let name = self.index_of(wanted.attribute);
        let constants = self.builtins.code_consts.get(self.code);
        let constants = constants.as_ref().map_or_else(Vec::new, items);
        let constant = position(&constants, wanted.attribute);
        if name.is_none() && constant.is_none() {
            return None;
        }
        // A method of another class speaks of its own object by the first of its variables.
        let of_another = |of: Option<usize>| self.is_method && !is_own && of == Some(0);
        let found = self.statements().into_iter().filter_map(|statement| {
            match statement.end {
                End::Attribute { name: set, of } if Some(set) == name => {
                    let is_it = match statement.path.as_slice() {
                        [] => !of_another(of),
                        path => !path.iter().any(|&part| self.is_class(part)),
                    };
                    return is_it.then(|| assigned(&statement, of, wanted)).flatten();
                }
                _ if self.is_method && !is_own => return None,
                _ => {}
            }
            let named = constant.and_then(|it| statement.position(Instruction::Constant(it)));
            if let Some(at) = named
                && self.sets_by_name(&statement)
            {
                return set_by_name(&statement, at, wanted);
            }
            let container = name.map(|name| Instruction::Attribute {
                name,
                called: false,
            });
            let is_it = |part: &Instruction| Some(*part) == container;
            // The value of an item is computed before its container.
            let at = match statement.end {
                End::Item => statement.value.iter().rposition(is_it),
                _ => statement.value.iter().position(is_it),
            }?;
            (wanted.in_container && self.puts(&statement))
                .then(|| strength(is_made_of(&statement, statement.owner_of(at), 0, wanted)))
        });
        found.max()
    }

    /// True if the function calls `taker`, or sets the property of this name, with something of its own.
    pub fn gives(&self, taker: &str, method: Option<&str>) -> bool {
        let Some(name) = self.index_of(taker) else {
            return false;
        };
        let method = match method.map(|method| self.index_of(method)) {
            None => None,
            Some(None) => return false,
            Some(Some(name)) => Some(Instruction::Attribute {
                name,
                called: false,
            }),
        };
        self.statements()
            .iter()
            .any(|statement| match statement.end {
                End::Attribute { name: set, .. } if set == name => {
                    statement.all_given() & !statement.target_given == 0
                        && !statement.is_constant()
                        && method.is_none_or(|method| statement.has(method))
                }
                _ => passes(statement, name, method),
            })
    }

    /// True if the function calls what has this name.
    pub fn calls(&self, name: &str) -> bool {
        let name = self.index_of(name);
        name.is_some_and(|name| {
            let mut statements = self.statements().into_iter();
            statements.any(|statement| called(&statement, name).is_some())
        })
    }

    /// True if the function passes `locals()` to what is called `taker`, and these can be what it gave.
    pub fn gives_locals(&self, taker: &str, locals: &Locals) -> bool {
        let (Some(taker), Some(global)) = (self.index_of(taker), self.index_of("locals")) else {
            return false;
        };
        let is_call = |pair: &[Instruction]| matches!(pair, [Instruction::Global(name), Instruction::Call] if *name == global);
        let passes = |statement: &Statement| {
            let taker = Instruction::Attribute {
                name: taker,
                called: true,
            };
            let at = statement.position(taker);
            at.is_some_and(|at| statement.value[at..].windows(2).any(is_call))
        };
        self.statements().iter().any(passes)
            && decode(self.builtins, self.code).is_some_and(|read| {
                let parameters = &read.variables[..read.parameters.min(read.variables.len())];
                parameters.iter().all(|name| locals.names.contains(name))
                    && read.variables.contains(&locals.name)
            })
    }

    /// True if a method stores its own object as an attribute of another object that it was not given:
    /// `self.child.owner = self`. One that was given to it may be an owner with which it registers.
    pub fn stores_own_object_as(&self, attribute: &str) -> bool {
        let name = self.index_of(attribute);
        let constants = self.builtins.code_consts.get(self.code);
        let constant = position(&constants.as_ref().map_or_else(Vec::new, items), attribute);
        let Some(own) = self
            .own_object()
            .filter(|_| name.is_some() || constant.is_some())
        else {
            return false;
        };
        self.statements().iter().any(|statement| {
            let is_own = |of: Option<usize>| of == Some(own) && statement.path.is_empty();
            let is_plain =
                matches!(statement.end, End::Attribute { name: set, of } if Some(set) == name && !is_own(of))
                    && statement.value == [Instruction::Load(own)]
                    && statement.target_given == 0;
            // `setattr(child, 'owner', self)`
            let named = constant.and_then(|it| statement.position(Instruction::Constant(it)));
            let by_name = named.is_some_and(|at| {
                let to = at.checked_sub(1).map(|to| (statement.value[to], statement.given[to]));
                statement.value.get(at + 1) == Some(&Instruction::Load(own))
                    && statement.is_use(at + 1)
                    && to.is_some_and(|(to, given)| to != Instruction::Load(own) && given == 0)
                    && self.calls_one_of(statement, &SETS)
            });
            is_plain || by_name
        })
    }

    /// True if a method stores as an attribute of its own object what a call of the class, or with its own object, returns.
    pub fn stores_made(&self, attribute: &str, class: Option<&str>) -> bool {
        let name = self.index_of(attribute);
        let class = class.and_then(|class| self.index_of(class));
        self.statements().iter().any(|statement| {
            let to_own = matches!(statement.end, End::Attribute { name: set, of: Some(0) } if Some(set) == name);
            let calls_class = class.is_some_and(|class| called(statement, class).is_some());
            to_own
                && statement.path.is_empty()
                && (calls_class || statement.has(Instruction::Call) && statement.uses(0) > 0)
        })
    }

    /// True if the function stores as an attribute of an object what the class makes from that: `a.child = Child(a)`.
    pub fn stores_made_from_owner(&self, attribute: &str, class: &str) -> bool {
        let (Some(name), Some(class)) = (self.index_of(attribute), self.index_of(class)) else {
            return false;
        };
        let statements = self.statements();
        let makes = |statement: &Statement, owner: usize| {
            called(statement, class).is_some() && statement.uses(owner) > 0
        };
        statements.iter().any(|statement| match statement.end {
            End::Attribute { name: set, of: Some(owner) } if set == name && statement.path.is_empty() => {
                let is_in = |variable: usize| {
                    let stores = |it: &&Statement| it.end == End::Variable(variable);
                    statements.iter().filter(stores).any(|it| makes(it, owner))
                };
                makes(statement, owner)
                    || matches!(statement.value[..], [Instruction::Load(variable)] if is_in(variable))
            }
            _ => false,
        })
    }

    /// True if the function stores `forth` of one of its variables, and then this variable as `back` of a later one:
    /// `a.child = b` and `b.owner = a`. Or `a.child.owner = a`.
    pub fn wires(&self, forth: &str, back: &str) -> bool {
        let (Some(forth), Some(back)) = (self.index_of(forth), self.index_of(back)) else {
            return false;
        };
        let statements = self.statements();
        let sets = |statement: &Statement, wanted: usize| match statement.end {
            End::Attribute { name, of } if name == wanted => of,
            _ => None,
        };
        statements.iter().enumerate().any(|(at, last)| {
            let Some(owner) = sets(last, back) else {
                return false;
            };
            let is_before = |it: &Statement| {
                sets(it, forth).is_some_and(|from| {
                    from < owner && it.path.is_empty() && last.value == [Instruction::Load(from)]
                })
            };
            match last.path[..] {
                [] => statements[..at].iter().any(is_before),
                [part] => part == forth && last.value == [Instruction::Load(owner)],
                _ => false,
            }
        })
    }

    /// True if a method calls what is called `taker` with its own object: `Child(self)`, `child.attach(self)`.
    pub fn passes_own_object_to(&self, taker: &str) -> bool {
        let (Some(name), Some(own)) = (self.index_of(taker), self.own_object()) else {
            return false;
        };
        self.statements().iter().any(|statement| {
            // A property, which passes it to its function.
            let is_set = matches!(statement.end, End::Attribute { name: set, of } if set == name && of != Some(own));
            if is_set && statement.value == [Instruction::Load(own)] {
                return true;
            }
            called(statement, name).is_some_and(|at| {
                let is_own = |part: usize| {
                    statement.value[part] == Instruction::Load(own) && statement.is_use(part)
                };
                (at + 1..statement.value.len()).any(is_own)
            })
        })
    }

    /// The variable that is the method's own object; in a function within a method, `self`.
    fn own_object(&self) -> Option<usize> {
        match self.is_method {
            true => Some(0),
            false => {
                let read = decode(self.builtins, self.code)?;
                read.variables.iter().position(|name| name == "self")
            }
        }
    }

    fn is_class(&self, name: usize) -> bool {
        self.name(name).as_deref() == Some("__class__")
    }

    fn puts(&self, statement: &Statement) -> bool {
        statement.end == End::Item || self.calls_one_of(statement, &PUTS)
    }

    fn sets_by_name(&self, statement: &Statement) -> bool {
        statement.end == End::Item || self.calls_one_of(statement, &SETS)
    }

    fn calls_one_of(&self, statement: &Statement, wanted: &[&str]) -> bool {
        let called = statement.value.iter().filter_map(|part| match part {
            Instruction::Attribute { name, called: true } | Instruction::Global(name) => {
                self.name(*name)
            }
            _ => None,
        });
        statement.has(Instruction::Call) && called.into_iter().any(|it| wanted.contains(&&*it))
    }
}

fn position(texts: &[Bound<'_, PyAny>], text: &str) -> Option<usize> {
    texts
        .iter()
        .position(|it| text_of(it).as_deref() == Some(text))
}

/// True if something of the function's own is passed to what is called so: a variable or a bound method.
fn passes(statement: &Statement, name: usize, method: Option<Instruction>) -> bool {
    let is_taker = |at: usize| match statement.value[at] {
        Instruction::Global(global) => {
            let next = statement.value.get(at + 1);
            global == name && !matches!(next, Some(Instruction::Attribute { .. }))
        }
        part => part == Instruction::Attribute { name, called: true },
    };
    let Some(at) = (0..statement.value.len()).find(|&at| is_taker(at)) else {
        return false;
    };
    let arguments = at + 1..statement.value.len();
    let is_own = statement.given[arguments.clone()].iter().all(|&it| it == 0);
    let is_called = statement.value[arguments.clone()].contains(&Instruction::Call);
    let has_argument = match method {
        Some(method) => statement.value[arguments].contains(&method),
        None => arguments.into_iter().any(|at| statement.is_use(at)),
    };
    is_own && is_called && has_argument
}

/// Where a statement names what it calls, if that has this name: not where it only passes it, as `cast(Child, value)`.
///
/// What is called comes before its arguments, and the call after them. So what is named up to there and was not called yet
/// needs a call each.
fn called(statement: &Statement, name: usize) -> Option<usize> {
    use Instruction::{Attribute, Call, Global};
    let value = &statement.value;
    let may_be_called = |at: &usize| match value[*at] {
        Global(_) => !matches!(value.get(at + 1), Some(Attribute { .. })),
        Attribute { called, .. } => called,
        _ => false,
    };
    let is_named = |at: &usize| match value[*at] {
        Global(it) | Attribute { name: it, .. } => it == name,
        _ => false,
    };
    let at = (0..value.len()).find(is_named)?;
    let calls = |parts: &[Instruction]| parts.iter().filter(|part| **part == Call).count();
    let named = (0..at).filter(may_be_called).count();
    let open = named.saturating_sub(calls(&value[..at])) + 1;
    (calls(&value[at..]) >= open).then_some(at)
}

/// What `owner.name = value` says.
fn assigned(statement: &Statement, owner: Option<usize>, wanted: &Wanted<'_>) -> Option<Strength> {
    let is_made_empty = wanted.may_be_empty && statement.has(Instruction::BuildEmpty);
    if statement.is_constant() && !is_made_empty {
        return None;
    }
    let uses = owner.map_or(0, |owner| statement.uses(owner));
    let is_given = statement.all_given() & !statement.target_given != 0;
    if wanted.in_container && !statement.has(Instruction::Build) {
        // What is in a container that was empty was put there later.
        return is_given.then_some(Strength::Taken);
    }
    if wanted.to_itself && uses == 0 {
        return is_given.then_some(Strength::Given);
    }
    let comes_back = uses > 0 && (wanted.to_itself || wanted.leads_back);
    Some(strength(!is_given || comes_back))
}

/// What `setattr(owner, 'name', value)` says, or `owner.__dict__['name'] = value`; the name is the part `at`.
fn set_by_name(statement: &Statement, at: usize, wanted: &Wanted<'_>) -> Option<Strength> {
    if statement.loads() < 2 || (wanted.in_container && !statement.has(Instruction::Build)) {
        return None;
    }
    let owner = statement.owner_of(at);
    // `setattr` is passed the owner itself.
    let passed = at.checked_sub(1).map(|before| statement.is_use(before));
    let passed = usize::from(passed == Some(true));
    Some(strength(is_made_of(statement, owner, passed, wanted)))
}

/// True if a value is made of nothing that the function was given but its owner.
///
/// `passed` uses of the owner are not of the value.
fn is_made_of(
    statement: &Statement,
    owner: Option<usize>,
    passed: usize,
    wanted: &Wanted<'_>,
) -> bool {
    let uses = owner
        .map_or(0, |owner| statement.uses(owner))
        .saturating_sub(passed);
    let comes_back = uses > 0 && (wanted.to_itself || wanted.leads_back);
    let parts = statement.value.iter().zip(&statement.given);
    let is_given = parts
        .filter(|(part, _)| owner.is_none_or(|owner| **part != Instruction::Load(owner)))
        .any(|(_, &given)| given != 0);
    comes_back || (!is_given && (uses > 0 || !wanted.to_itself))
}

fn strength(is_made: bool) -> Strength {
    match is_made {
        true => Strength::Made,
        false => Strength::Given,
    }
}
