//! The instructions of a code object, as far as they tell what is assigned to what.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::builtins::Builtins;
use super::frames::variable_names;
use super::operations::{Operation, Operations};
use super::read::int_value;

/// One instruction. Names, constants and variables are told by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Of a local variable or one of a function around it.
    Load(usize),
    Store(usize),
    /// An assignment to a global variable, or one of a class body.
    StoreGlobal,
    Global(usize),
    Constant(usize),
    /// False or None, where that is no constant of the code object's own.
    Untrue,
    /// Of what was computed last; `called` if it is called at once, as a method.
    Attribute {
        name: usize,
        called: bool,
    },
    SetAttribute(usize),
    SetItem,
    /// Makes a container that is not empty.
    Build,
    BuildEmpty,
    MakeFunction,
    Call,
    Drop,
    /// The function returns or raises.
    Leave,
    Other,
}

/// A code object's instructions and the names of its variables.
pub struct Instructions {
    pub all: Vec<Instruction>,
    /// The parameters first. One that inner functions use too may be here twice.
    pub variables: Vec<String>,
    pub parameters: usize,
    /// For each call with keywords, how many instructions come before it, and which constant names its last arguments.
    pub keywords: Vec<(usize, usize)>,
}

/// Decodes a code object (`_PyCode_GetCode` in Objects/codeobject.c gives the instructions as compiled).
pub fn decode(builtins: &Builtins, code: &Bound<'_, PyAny>) -> Option<Instructions> {
    let operations = builtins.operations.as_ref()?;
    let number =
        |part: &crate::cpython::Descriptor| usize::try_from(int_value(&part.get(code)?)?).ok();
    let flags = number(&builtins.code_flags)?;
    let more = usize::from(flags & CO_VARARGS != 0) + usize::from(flags & CO_VARKEYWORDS != 0);
    let parameters =
        number(&builtins.code_argcount)? + number(&builtins.code_kwonlyargcount)? + more;
    let variables = variable_names(builtins, code);
    // Up to 3.10, shared variables have numbers of their own.
    let shared = match operations.version < (3, 11) {
        true => number(&builtins.code_nlocals)?,
        false => 0,
    };
    let bytes = builtins.code_bytes.get(code)?;
    let bytes = bytes.cast_exact::<PyBytes>().ok()?.as_bytes();
    let mut all = Vec::with_capacity(bytes.len() / 4);
    let mut keywords = Vec::new();
    let mut extended = 0;
    for pair in bytes.chunks_exact(2) {
        let operation = operations.by_code[usize::from(pair[0])];
        let argument = extended << 8 | usize::from(pair[1]);
        extended = 0;
        match operation {
            Operation::Extended => extended = argument & 0xff_ffff,
            Operation::Keywords => keywords.push((all.len(), argument)),
            Operation::Call => {
                if let Some(&Instruction::Constant(names)) = all.last() {
                    keywords.push((all.len() - 1, names));
                }
                all.push(Instruction::Call);
            }
            operation => read(operations, operation, argument, shared, &mut all),
        }
    }
    let same = |i: usize| {
        let name = variables.get(i)?;
        variables.iter().position(|other| other == name)
    };
    for instruction in &mut all {
        if let Instruction::Load(i) | Instruction::Store(i) = instruction {
            *i = same(*i).unwrap_or(*i);
        }
    }
    Some(Instructions {
        all,
        variables,
        parameters,
        keywords,
    })
}

fn read(
    operations: &Operations,
    operation: Operation,
    argument: usize,
    shared: usize,
    all: &mut Vec<Instruction>,
) {
    use Instruction as I;
    let pair = (argument >> 4, argument & 15);
    let read = match operation {
        Operation::Skip | Operation::Extended | Operation::Keywords => return,
        Operation::Load => I::Load(argument),
        Operation::LoadShared => I::Load(shared + argument),
        Operation::LoadTwo => {
            all.push(I::Load(pair.0));
            I::Load(pair.1)
        }
        Operation::Store => I::Store(argument),
        Operation::StoreShared => I::Store(shared + argument),
        Operation::StoreAndLoad => {
            all.push(I::Store(pair.0));
            I::Load(pair.1)
        }
        Operation::StoreTwo => {
            all.push(I::Store(pair.0));
            I::Store(pair.1)
        }
        Operation::StoreGlobal => I::StoreGlobal,
        Operation::Global if operations.version < (3, 11) => I::Global(argument),
        Operation::Global => I::Global(argument >> 1),
        Operation::Constant => I::Constant(argument),
        Operation::CommonConstant if operations.untrue.contains(&argument) => I::Untrue,
        Operation::Attribute if operations.version < (3, 12) => I::Attribute {
            name: argument,
            called: false,
        },
        Operation::Attribute => I::Attribute {
            name: argument >> 1,
            called: argument & 1 != 0,
        },
        Operation::Method => I::Attribute {
            name: argument,
            called: true,
        },
        Operation::SuperAttribute => I::Attribute {
            name: argument >> 2,
            called: argument & 1 != 0,
        },
        Operation::SetAttribute => I::SetAttribute(argument),
        Operation::SetItem => I::SetItem,
        Operation::Build if argument == 0 => I::BuildEmpty,
        Operation::Build | Operation::Extend => I::Build,
        Operation::MakeFunction => I::MakeFunction,
        Operation::Call => I::Call,
        Operation::Drop => I::Drop,
        Operation::Leave => I::Leave,
        Operation::CommonConstant | Operation::Other => I::Other,
    };
    all.push(read);
}

/// The `CO_` flags of a code object (Include/cpython/code.h).
const CO_VARARGS: usize = 0x04;
const CO_VARKEYWORDS: usize = 0x08;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpython::attributes::first_of_kind;
    use crate::cpython::{ObjectKind, items, text_of};

    #[test]
    fn an_assignment_is_read_as_it_was_written() {
        Python::attach(|py| {
            let builtins = Builtins::new(py).expect("CPython has all of them");
            let function = py
                .eval(
                    c"(lambda g: (exec('def f(self, given, *, more=1):\\n self.kept = given\\n self.held[more] = self\\n self.put(self.run)', g), g['f'])[1])({})",
                    None,
                    None,
                )
                .expect("it is valid");
            let code = first_of_kind(&builtins, &function, ObjectKind::Code).expect("it has one");
            let read = decode(&builtins, &code).expect("it can be read");
            assert_eq!((read.parameters, read.variables.len()), (3, 3));
            let names = builtins.code_names.get(&code).expect("it has names");
            let at = |name: &str| {
                let all = items(&names);
                all.iter()
                    .position(|it| text_of(it).as_deref() == Some(name))
                    .expect("it is named")
            };
            let attribute = |name, called| Instruction::Attribute {
                name: at(name),
                called,
            };
            use Instruction::{Call, Drop, Load, SetAttribute, SetItem};
            let expected = [
                Load(1),
                Load(0),
                SetAttribute(at("kept")),
                Load(0),
                Load(0),
                attribute("held", false),
                Load(2),
                SetItem,
                Load(0),
                attribute("put", true),
                Load(0),
                attribute("run", false),
                Call,
                Drop,
            ];
            assert_eq!(read.all[..expected.len()], expected);
        });
    }
}
