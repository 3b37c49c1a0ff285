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
    /// The parameters that the value is made from, one bit for each.
    pub given: u64,
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
    for &instruction in &read.all {
        let end = match instruction {
            Instruction::SetAttribute(name) => End::Attribute {
                name,
                of: take_owner(&mut open),
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
        let loaded = open.iter().map(|part| match part {
            Instruction::Load(variable) => of(*variable),
            _ => 0,
        });
        let statement = Statement {
            given: loaded.fold(0, |all, one| all | one),
            target_given: match end {
                End::Attribute { of: Some(owner), .. } => of(owner),
                _ => 0,
            },
            value: std::mem::take(&mut open),
            end,
        };
        if let End::Variable(variable) = end
            && let Some(known) = given.get_mut(variable)
        {
            *known |= statement.given;
        }
        all.push(statement);
    }
    Some(all)
}

fn bit(parameter: usize) -> u64 {
    1 << parameter.min(63)
}

/// Takes off what computes the object whose attribute is set: a variable, and attributes from there on.
fn take_owner(open: &mut Vec<Instruction>) -> Option<usize> {
    let attributes = open.iter().rev();
    let attributes = attributes
        .take_while(|part| matches!(part, Instruction::Attribute { called: false, .. }))
        .count();
    let at = open.len().checked_sub(attributes + 1)?;
    let Instruction::Load(variable) = open[at] else {
        return None;
    };
    open.truncate(at);
    Some(variable)
}

impl Statement {
    /// How often a variable is used as it is, and not only for one of its attributes.
    pub fn uses(&self, variable: usize) -> usize {
        let parts = self.value.iter().enumerate();
        parts
            .filter(|&(at, part)| {
                let next = self.value.get(at + 1);
                *part == Instruction::Load(variable)
                    && !matches!(next, Some(Instruction::Attribute { .. }))
            })
            .count()
    }

    /// The number of times that variables are read.
    pub fn loads(&self) -> usize {
        let is_load = |part: &&Instruction| matches!(part, Instruction::Load(_));
        self.value.iter().filter(is_load).count()
    }

    pub fn has(&self, wanted: Instruction) -> bool {
        self.value.contains(&wanted)
    }

    /// True if some variable is used as it is.
    pub fn passes_variable(&self) -> bool {
        let mut parts = self.value.iter();
        parts.any(|part| matches!(part, Instruction::Load(variable) if self.uses(*variable) > 0))
    }

    /// True if a constant or a global is all that is computed.
    pub fn is_constant(&self) -> bool {
        let is_nothing = |part: &Instruction| {
            use Instruction::{Constant, Global, Other};
            matches!(part, Constant(_) | Global(_) | Other)
        };
        self.value.iter().all(is_nothing)
    }
}
