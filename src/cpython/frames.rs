//! Frames and their variables, read where the interpreter has them.

use pyo3::ffi;
use pyo3::prelude::*;

use super::ObjectKind;
use super::attributes::first_of_kind;
use super::builtins::Builtins;
use super::frame_layout::{FrameLayout, TAG, VariableNames};
use super::read::{referents, texts_of};

pub type Variables = Vec<(String, usize)>;

/// Addresses of what a frame refers to, zero for what it has not got.
#[derive(Default)]
pub struct InnerFrame {
    pub function: usize,
    pub globals: usize,
    pub locals: usize,
    pub frame_object: usize,
    /// The calling frame, if the frame object refers to it.
    pub back: usize,
    /// Of the generator or coroutine that the structure is a part of, if it is one's.
    pub suspended: usize,
    pub variables: Variables,
}

/// What a frame refers to, read where the interpreter has it; `None` if that is not known.
pub fn inner_frame(builtins: &Builtins, frame: &Bound<'_, PyAny>) -> Option<InnerFrame> {
    if builtins.frames_await {
        in_frame_object(builtins, frame)
    } else {
        builtins.frames?.of_frame(builtins, frame)
    }
}

/// The code of a frame. The getter `f_code`, which would tell the program's audit hooks, is the last resort.
pub fn code_of_frame<'py>(
    builtins: &Builtins,
    frame: &Bound<'py, PyAny>,
) -> Option<Bound<'py, PyAny>> {
    // SAFETY: attached, the object and its type are alive.
    if unsafe { builtins.kind(ffi::Py_TYPE(frame.as_ptr())) } != ObjectKind::Frame {
        return None;
    }
    if builtins.frames_await {
        return first_of_kind(builtins, frame, ObjectKind::Code);
    }
    let Some(layout) = builtins.frames else {
        return builtins.frame_code.get(frame);
    };
    let (code, _) = layout.checked(builtins, frame)?;
    // SAFETY: attached; the frame refers to its code.
    Some(unsafe { Bound::from_borrowed_ptr(frame.py(), code as *mut ffi::PyObject) })
}

impl FrameLayout {
    /// The address of a frame's code and that of the structure, if that is what it should be: it knows the
    /// frame object or is a part of it, and has the globals that `f_globals` returns.
    pub(super) fn checked(
        &self,
        builtins: &Builtins,
        frame: &Bound<'_, PyAny>,
    ) -> Option<(usize, *const usize)> {
        let globals = builtins.frame_globals.get(frame)?;
        // SAFETY: attached, so the frame does not move on. The structure is alive as long as the frame
        // object: if the call ends first, it is moved there (`take_ownership` in Python/frame.c).
        unsafe {
            let inner = *frame.as_ptr().cast::<usize>().add(self.inner) as *const usize;
            if inner.is_null() || !inner.is_aligned() {
                return None;
            }
            let own = frame
                .as_ptr()
                .cast::<usize>()
                .add(self.in_frame)
                .cast_const();
            let linked = match *inner.add(self.frame_object) {
                0 => inner == own,
                object => object == frame.as_ptr() as usize,
            };
            let is_it = linked && *inner.add(self.globals) == globals.as_ptr() as usize;
            is_it.then(|| (*inner.add(self.code) & !TAG, inner))
        }
    }

    /// The addresses of the first entries of a frame's stack, which follows its variables: those that are counted.
    pub(super) fn stack(
        &self,
        builtins: &Builtins,
        frame: &Bound<'_, PyAny>,
        variables: usize,
        entries: usize,
    ) -> Option<Vec<usize>> {
        let (_, inner) = self.checked(builtins, frame)?;
        let entry = |place: usize| {
            // SAFETY: the structure has been checked; the stack has room for these entries.
            unsafe { *inner.add(self.variables + variables + place) }
        };
        let is_counted = |word: &usize| *word != 0 && word & TAG == 0;
        Some((0..entries).map(entry).filter(is_counted).collect())
    }

    fn of_frame(&self, builtins: &Builtins, frame: &Bound<'_, PyAny>) -> Option<InnerFrame> {
        let (_, inner) = self.checked(builtins, frame)?;
        // SAFETY: the structure has been checked; the word before it is the frame object's own.
        unsafe {
            let mut read = self.read(builtins, frame.py(), inner);
            read.back = *frame.as_ptr().cast::<usize>().add(self.back);
            Some(read)
        }
    }

    /// What a generator, coroutine or asynchronous generator refers to, without making its frame object.
    ///
    /// `None` if it has come to its end. Else it refers to its function and its code, one after the other
    /// (`_PyFrame_Traverse` in Python/frame.c), and these are two words of the structure.
    pub fn of_suspended(
        &self,
        builtins: &Builtins,
        object: &Bound<'_, PyAny>,
    ) -> Option<InnerFrame> {
        // SAFETY: attached; every suspended object has the structure, up to the variables.
        unsafe {
            let inner = object
                .as_ptr()
                .cast::<usize>()
                .add(self.in_suspended)
                .cast_const();
            let pair = [self.function, self.code].map(|word| *inner.add(word) & !TAG);
            let is_it = referents(object).windows(2).any(|next| next == pair);
            is_it.then(|| self.read(builtins, object.py(), inner))
        }
    }

    /// # Safety
    /// The caller is attached, and `inner` is such a structure, with as many variables as its code has.
    unsafe fn read(&self, builtins: &Builtins, py: Python<'_>, inner: *const usize) -> InnerFrame {
        // SAFETY: by this function's contract.
        unsafe {
            let part = |word: usize| *inner.add(word) & !TAG;
            let code = Bound::from_borrowed_ptr(py, part(self.code) as *mut ffi::PyObject);
            InnerFrame {
                function: part(self.function),
                globals: part(self.globals),
                locals: part(self.locals),
                frame_object: part(self.frame_object),
                back: 0,
                suspended: (inner as usize).wrapping_sub(self.in_suspended * size_of::<usize>()),
                variables: variable_names(builtins, &code)
                    .into_iter()
                    .enumerate()
                    .map(|(i, name)| (name, part(self.variables + i)))
                    .filter(|(_, address)| *address != 0)
                    .collect(),
            }
        }
    }
}

/// The variables of a function in the order of its frame's slots: its own, beginning with the arguments,
/// then further ones that inner functions use too, then those it has from functions around it.
pub fn variable_names(builtins: &Builtins, code: &Bound<'_, PyAny>) -> Vec<String> {
    match &builtins.variable_names {
        VariableNames::Stored(parts) => parts
            .iter()
            .filter_map(|part| part.get(code))
            .flat_map(|names| texts_of(&names))
            .collect(),
        VariableNames::InPlace { code_type, word }
            if *code_type == code.get_type().as_ptr() as usize =>
        {
            // SAFETY: attached; every code object has the tuple there, as `known` has seen.
            let names = unsafe {
                let names = *code.as_ptr().cast::<*mut ffi::PyObject>().add(*word);
                Bound::from_borrowed_ptr(code.py(), names)
            };
            texts_of(&names)
        }
        _ => Vec::new(),
    }
}

/// Where a frame object of 3.10 has its parts, in words (`struct _frame` in Include/cpython/frameobject.h).
mod frame_3_10 {
    pub const BACK: usize = 3;
    pub const CODE: usize = 4;
    pub const GLOBALS: usize = 6;
    pub const LOCALS: usize = 7;
    /// Where the calculation stack begins: behind the variables.
    pub const STACK: usize = 8;
    pub const VARIABLES: usize = 44;
}

/// As [`FrameLayout::of_frame`], for 3.10, where the frame object itself has the variables.
fn in_frame_object(builtins: &Builtins, frame: &Bound<'_, PyAny>) -> Option<InnerFrame> {
    use frame_3_10::*;
    let code = code_of_frame(builtins, frame)?;
    let names = variable_names(builtins, &code);
    let words = frame.as_ptr().cast::<usize>();
    // SAFETY: attached, so the frame does not move on. A frame object is larger than the parts read
    // first, which tell whether it is laid out as we take it for: the stack begins right behind as
    // many variables as there are names.
    unsafe {
        let stack = words.add(VARIABLES + names.len());
        if *words.add(CODE) != code.as_ptr() as usize || *words.add(STACK) != stack as usize {
            return None;
        }
        Some(InnerFrame {
            globals: *words.add(GLOBALS),
            locals: *words.add(LOCALS),
            back: *words.add(BACK),
            variables: names
                .into_iter()
                .enumerate()
                .map(|(i, name)| (name, *words.add(VARIABLES + i)))
                .filter(|(_, address)| *address != 0)
                .collect(),
            ..InnerFrame::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_a_suspended_generator_are_read_in_it() {
        Python::attach(|py| {
            let builtins = Builtins::new(py).expect("CPython has all of them");
            let since_3_11 = py.version_info() >= (3, 11);
            assert_eq!(builtins.frames.is_some(), since_3_11);
            let names = matches!(builtins.variable_names, VariableNames::InPlace { .. });
            assert_eq!(names, since_3_11);
            let made = py
                .eval(c"(it for it in [type])", None, None)
                .expect("it is valid");
            made.call_method0("__next__").expect("there is an item");
            let Some(layout) = builtins.frames else {
                return;
            };
            let inner = layout
                .of_suspended(&builtins, &made)
                .expect("it is suspended");
            let found = inner.variables.iter().find(|(name, _)| name == "it");
            assert_eq!(
                found.map(|(_, address)| *address),
                Some(py.get_type::<pyo3::types::PyType>().as_ptr() as usize)
            );
            assert_eq!(inner.frame_object, 0);
            assert!(made.call_method0("__next__").is_err());
            assert!(layout.of_suspended(&builtins, &made).is_none());
        });
    }
}
