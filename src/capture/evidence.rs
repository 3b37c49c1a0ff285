//! What one function says about a reference: whether it makes it, of its own accord or of what it was given.

use pyo3::prelude::*;

use super::statements::{End, Statement, statements};
use crate::cpython::instructions::Instruction;
use crate::cpython::{Builtins, items, text_of};

/// What is called to put something into a container.
const PUTS: [&str; 9] = [
    "append", "add", "insert", "extend", "update", "setdefault", "appendleft", "put", "__setitem__",
];
/// What is called to set an attribute by its name.
const SETS: [&str; 6] = [
    "setattr", "__setattr__", "setdefault", "update", "add_module", "register_module",
];

/// A reference whose maker is looked for: from an object by an attribute.
pub struct Wanted<'a> {
    pub attribute: &'a str,
    /// The attribute is a container, and the reference is to what is in it.
    pub in_container: bool,
    /// It leads to the object itself.
    pub to_itself: bool,
    /// What it leads to refers to the object.
    pub leads_back: bool,
    /// The bound method that it leads to, if it does.
    pub method: Option<&'a str>,
}

/// What a function adds to a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
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
                    return (!of_another(of))
                        .then(|| assigned(&statement, of, wanted))
                        .flatten();
                }
                _ if self.is_method && !is_own => return None,
                _ => {}
            }
            let named = constant.is_some_and(|it| statement.has(Instruction::Constant(it)));
            if named && self.sets_by_name(&statement) {
                return set_by_name(&statement, wanted);
            }
            let in_it = name.is_some_and(|name| {
                statement.has(Instruction::Attribute {
                    name,
                    called: false,
                })
            });
            if wanted.in_container && in_it && self.puts(&statement) {
                return put(&statement, wanted);
            }
            None
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
        self.statements().iter().any(|statement| {
            let is_own = statement.given & !statement.target_given == 0;
            let has_method = method.is_none_or(|method| statement.has(method));
            let is_given = match statement.end {
                End::Attribute { name: set, .. } if set == name => !statement.is_constant(),
                _ => calls(statement, name) && (method.is_some() || statement.passes_variable()),
            };
            is_own && has_method && is_given
        })
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

fn calls(statement: &Statement, name: usize) -> bool {
    let is_called = statement.has(Instruction::Global(name))
        || statement.has(Instruction::Attribute { name, called: true });
    is_called && statement.has(Instruction::Call)
}

/// What `owner.name = value` says.
fn assigned(statement: &Statement, owner: Option<usize>, wanted: &Wanted<'_>) -> Option<Strength> {
    if statement.is_constant() {
        return None;
    }
    let uses = owner.map_or(0, |owner| statement.uses(owner));
    let is_given = statement.given & !statement.target_given != 0;
    if wanted.in_container && !statement.has(Instruction::Build) {
        // What is in a container that was empty was put there later.
        return is_given.then_some(Strength::Given);
    }
    if wanted.to_itself && uses == 0 {
        return is_given.then_some(Strength::Given);
    }
    let comes_back = uses > 0 && (wanted.to_itself || wanted.leads_back);
    Some(strength(!is_given || comes_back))
}

/// What `setattr(owner, 'name', value)` says, or `owner.__dict__['name'] = value`.
fn set_by_name(statement: &Statement, wanted: &Wanted<'_>) -> Option<Strength> {
    if statement.loads() < 2 || (wanted.in_container && !statement.has(Instruction::Build)) {
        return None;
    }
    Some(strength(is_made_of_owner(statement, wanted)))
}

/// What `owner.name.append(value)` says, or `owner.name[key] = value`.
fn put(statement: &Statement, wanted: &Wanted<'_>) -> Option<Strength> {
    Some(strength(is_made_of_owner(statement, wanted)))
}

/// True if a value is made of the object that is given it, which may be any of the variables.
fn is_made_of_owner(statement: &Statement, wanted: &Wanted<'_>) -> bool {
    let first = statement.value.iter().find_map(|part| match part {
        Instruction::Load(variable) => Some(*variable),
        _ => None,
    });
    let uses = first.map_or(0, |first| statement.uses(first));
    let comes_back = wanted.to_itself || wanted.leads_back;
    match statement.given {
        0 => !wanted.to_itself || uses > 0,
        _ if comes_back && uses > 0 => true,
        // Of one parameter alone, which is the owner.
        one => one.is_power_of_two() && statement.loads() > 1 && first_is_given(statement, first),
    }
}

/// True if all that is read is one variable.
fn first_is_given(statement: &Statement, first: Option<usize>) -> bool {
    statement.value.iter().all(|part| match part {
        Instruction::Load(variable) => Some(*variable) == first,
        _ => true,
    })
}

fn strength(is_made: bool) -> Strength {
    match is_made {
        true => Strength::Made,
        false => Strength::Given,
    }
}
