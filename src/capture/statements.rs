//! What a function assigns, read from its instructions: statement by statement, with what went into each.

use pyo3::prelude::*;

use crate::cpython::Builtins;
use crate::cpython::instructions::{Instruction, decode};

/// One assignment or expression of a function.
#[derive(Debug)]
pub struct Statement {
    /// What is computed, in order; without the object whose attribute is set.
    pub value: Vec<Instruction>,
    pub end: End,
    /// For each part of the value, the parameters that it is made from: one bit for each parameter.
    pub given: Vec<u64>,
    /// The attributes that lead from a variable to the object whose attribute is set.
    pub path: Vec<usize>,
    /// Those that the object is made from whose attribute is set.
    pub target_given: u64,
}

/// What becomes of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It is stored as the attribute of the object that a variable leads to, if one does.
    Attribute {
        name: usize,
        of: Option<usize>,
    },
    Item,
    Variable(usize),
    /// It is dropped, returned, or stored in a global variable.
    Other,
}

/// The statements of a function. That a method is given its own object does not count as given.
pub fn statements(
    builtins: &Builtins,
    code: &Bound<'_, PyAny>,
    is_method: bool,
) -> Option<Vec<Statement>> {
    let read = decode(builtins, code)?;
    let mut given: Vec<u64> = (0..read.variables.len())
        .map(|i| match i < read.parameters && !(is_method && i == 0) {
            true => bit(i),
            false => 0,
        })
        .collect();
    let mut all: Vec<Statement> = Vec::new();
    let mut open: Vec<Instruction> = Vec::new();
    let mut path = Vec::new();
    for &instruction in &read.all {
        let end = match instruction {
            Instruction::SetAttribute(name) => End::Attribute {
                name,
                of: take_owner(&mut open, &mut path),
            },
            Instruction::SetItem => End::Item,
            Instruction::Store(variable) => End::Variable(variable),
            Instruction::StoreGlobal | Instruction::Leave => End::Other,
            Instruction::Drop if open.last() == Some(&Instruction::Call) => End::Other,
            Instruction::Drop => continue,
            part => {
                open.push(part);
                continue;
            }
        };
        // One value can be stored several times: `a.x = b.y = value`.
        if open.is_empty()
            && let Some(before) = all.last()
        {
            open.clone_from(&before.value);
        }
        let of = |variable: usize| given.get(variable).copied().unwrap_or(0);
        let given_each = open.iter().map(|part| match part {
            Instruction::Load(variable) => of(*variable),
            _ => 0,
        });
        let statement = Statement {
            given: given_each.collect(),
            path: std::mem::take(&mut path),
            target_given: match end {
                End::Attribute {
                    of: Some(owner), ..
                } => of(owner),
                _ => 0,
            },
            value: std::mem::take(&mut open),
            end,
        };
        if let End::Variable(variable) = end
            && let Some(known) = given.get_mut(variable)
        {
            *known |= statement.all_given();
        }
        all.push(statement);
    }
    Some(all)
}

fn bit(parameter: usize) -> u64 {
    1 << parameter.min(63)
}

/// Takes off what computes the object whose attribute is set: a variable, and attributes from there on.
fn take_owner(open: &mut Vec<Instruction>, path: &mut Vec<usize>) -> Option<usize> {
    let attributes = open.iter().rev();
    let attributes = attributes
        .take_while(|part| matches!(part, Instruction::Attribute { called: false, .. }))
        .count();
    let at = open.len().checked_sub(attributes + 1)?;
    let Instruction::Load(variable) = open[at] else {
        return None;
    };
    let taken = open.drain(at..);
    path.extend(taken.filter_map(|part| match part {
        Instruction::Attribute { name, .. } => Some(name),
        _ => None,
    }));
    Some(variable)
}

impl Statement {
    /// The parameters that the value is made from.
    pub fn all_given(&self) -> u64 {
        self.given.iter().fold(0, |all, one| all | one)
    }

    /// The variable that a part of the value is computed from by attributes alone.
    pub fn owner_of(&self, part: usize) -> Option<usize> {
        let mut before = self.value.get(..part)?.iter().rev();
        let is_path =
            |part: &&Instruction| matches!(part, Instruction::Attribute { called: false, .. });
        match before.find(|part| !is_path(part)) {
            Some(Instruction::Load(variable)) => Some(*variable),
            _ => None,
        }
    }

    pub fn position(&self, wanted: Instruction) -> Option<usize> {
        self.value.iter().position(|part| *part == wanted)
    }

    /// How often a variable is used as it is, and not only for one of its attributes.
    pub fn uses(&self, variable: usize) -> usize {
        let is_it = |at: &usize| self.value[*at] == Instruction::Load(variable);
        let uses = (0..self.value.len()).filter(|at| is_it(at) && self.is_use(*at));
        uses.count()
    }

    /// True if a part is a variable that is used as it is.
    pub fn is_use(&self, part: usize) -> bool {
        let next = self.value.get(part + 1);
        matches!(self.value[part], Instruction::Load(_))
            && !matches!(next, Some(Instruction::Attribute { .. }))
    }

    /// The number of times that variables are read.
    pub fn loads(&self) -> usize {
        let is_load = |part: &&Instruction| matches!(part, Instruction::Load(_));
        self.value.iter().filter(is_load).count()
    }

    pub fn has(&self, wanted: Instruction) -> bool {
        self.value.contains(&wanted)
    }

    /// True if a constant, an empty container or a global is all that is computed.
    pub fn is_constant(&self) -> bool {
        let is_nothing = |part: &Instruction| {
            use Instruction::{BuildEmpty, Constant, Global, Other, Untrue};
            matches!(part, BuildEmpty | Constant(_) | Global(_) | Other | Untrue)
        };
        self.value.iter().all(is_nothing)
    }
}
