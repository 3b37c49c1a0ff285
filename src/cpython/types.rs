//! What is known of each type, cached by its address.

use std::ffi::c_int;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;
use rustc_hash::FxHashMap;

use super::builtins::Builtins;
use super::layouts::Form;
use super::{Binding, ObjectKind};

/// A caller's opinion of a type: 0 for a type of no interest, else a number of its own.
pub type Verdict = u8;

/// What traversal and analysis need to know of a type.
#[derive(Clone, Copy)]
pub struct TypeFacts {
    pub traverse: Option<ffi::traverseproc>,
    /// The type has a finalizer that the collector runs (`__del__`, generators, coroutines).
    pub finalizes: bool,
    /// [`Form::Other`] also where more of an object matters than what it refers to.
    pub form: Form,
    pub kind: ObjectKind,
    pub verdict: Verdict,
    /// The most references that an object of the type can have if it matters to garbage which refers
    /// to it and of which the collector did not find it. None if it refers to nothing and is no
    /// buffer, or is a class, which refers to itself (`__mro__`) and so is found; any number if it may
    /// be a buffer; else one, or a few of an [untrackable](TypeFacts::is_untrackable) object.
    pub most_references: u32,
}

impl TypeFacts {
    /// What stands for no type at all.
    pub const NONE: Self = Self {
        traverse: None,
        finalizes: false,
        form: Form::Other,
        kind: ObjectKind::Instance,
        verdict: 0,
        most_references: 0,
    };

    /// A dict or a tuple: the collector does not track one that refers to nothing it tracks.
    pub fn is_untrackable(&self) -> bool {
        is_untrackable(self.kind)
    }
}

fn is_untrackable(kind: ObjectKind) -> bool {
    matches!(kind, ObjectKind::Dict | ObjectKind::Tuple)
}

/// A dict or tuple with more references than this is a fixture of the program.
const FEW: u32 = 64;

/// The facts of every type seen so far, or if the type was made at run time, in this pass.
///
/// A type made at run time can die and another be born at its address. To be told of its death takes a weak
/// reference, which the program would see; to learn its facts anew takes a tenth of a microsecond.
pub struct TypeTable {
    /// Types that are part of a library.
    lasting: FxHashMap<usize, TypeFacts>,
    /// Types made at run time, met in this pass.
    passing: FxHashMap<usize, TypeFacts>,
    /// Types met, each in the one place that its address allows: heaps are large and consist of few
    /// types, so nearly every question is answered here.
    recent: [Met; RECENT],
    /// A bit for each place that a type which can die has taken in this pass.
    mortal: [u64; RECENT / 64],
}

/// A pass that met more types made at run time than this gives their memory back.
const MANY: usize = 1024;

/// Two to the power of `RECENT_BITS` places.
const RECENT: usize = 1 << RECENT_BITS;
const RECENT_BITS: u32 = 8;

/// A type that was met: in this pass, or earlier if it cannot die.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct Met {
    address: usize,
    facts: TypeFacts,
}

/// What stands in a place of `TypeTable::recent` that no type has taken.
const NOBODY: Met = Met {
    address: 0,
    facts: TypeFacts::NONE,
};

impl TypeTable {
    pub fn new() -> Self {
        Self {
            lasting: FxHashMap::default(),
            passing: FxHashMap::default(),
            recent: [NOBODY; RECENT],
            mortal: [0; RECENT / 64],
        }
    }

    /// Begins a pass: a stretch of work during which the caller sees to it that no type dies.
    pub fn begin_pass(&mut self) {
        if self.passing.capacity() > MANY {
            self.passing = FxHashMap::default();
        } else {
            self.passing.clear();
        }
        for (places, mortal) in self.recent.chunks_mut(64).zip(&mut self.mortal) {
            while *mortal != 0 {
                places[mortal.trailing_zeros() as usize] = NOBODY;
                *mortal &= *mortal - 1;
            }
        }
    }

    /// Forgets everything; for when the classifier's opinions change.
    pub fn clear(&mut self) {
        self.lasting.clear();
        self.passing.clear();
        self.recent.fill(NOBODY);
    }

    /// The facts of a type, from the cache or, on first sight, from the type and `classify`.
    ///
    /// # Safety
    /// `ty` is a live type and the caller is attached to the interpreter.
    #[inline]
    pub unsafe fn facts(
        &mut self,
        builtins: &Builtins,
        classify: &impl Fn(*mut ffi::PyTypeObject) -> Verdict,
        ty: *mut ffi::PyTypeObject,
    ) -> &TypeFacts {
        if self.met(ty).is_none() {
            // SAFETY: by this function's contract.
            unsafe { self.meet(builtins, classify, ty) };
        }
        &self.recent[place(ty)].facts
    }

    /// The facts of a type if it was met lately and no other has taken its place since.
    #[inline]
    pub fn met(&self, ty: *mut ffi::PyTypeObject) -> Option<&TypeFacts> {
        let met = &self.recent[place(ty)];
        (met.address == ty as usize).then_some(&met.facts)
    }

    /// Puts a type in its place in `recent`.
    ///
    /// # Safety
    /// As for [`TypeTable::facts`].
    #[cold]
    #[inline(never)]
    unsafe fn meet(
        &mut self,
        builtins: &Builtins,
        classify: &impl Fn(*mut ffi::PyTypeObject) -> Verdict,
        ty: *mut ffi::PyTypeObject,
    ) {
        // SAFETY: by this function's contract.
        let is_mortal = unsafe { is_heap_type(ty) };
        let known = if is_mortal {
            &mut self.passing
        } else {
            &mut self.lasting
        };
        let facts = *known
            .entry(ty as usize)
            // SAFETY: by this function's contract.
            .or_insert_with(|| unsafe { learn(builtins, classify, ty) });
        let place = place(ty);
        self.mortal[place / 64] |= u64::from(is_mortal) << (place % 64);
        self.recent[place] = Met {
            address: ty as usize,
            facts,
        };
    }
}

/// What a type says of itself.
///
/// # Safety
/// `ty` is a live type and the caller is attached to the interpreter.
unsafe fn learn(
    builtins: &Builtins,
    classify: &impl Fn(*mut ffi::PyTypeObject) -> Verdict,
    ty: *mut ffi::PyTypeObject,
) -> TypeFacts {
    // SAFETY: by this function's contract; each slot is cast to the type that CPython documents
    // for it; an empty slot is a null pointer, which is `None`.
    unsafe {
        let slot = |number: c_int| ffi::PyType_GetSlot(ty, number);
        let collectable = ffi::PyType_GetFlags(ty) & ffi::Py_TPFLAGS_HAVE_GC != 0;
        let kind = builtins.kind(ty);
        let verdict = classify(ty);
        let traverse = collectable
            .then(|| {
                std::mem::transmute::<*mut std::ffi::c_void, Option<ffi::traverseproc>>(slot(
                    ffi::Py_tp_traverse,
                ))
            })
            .flatten();
        let finalizes = !slot(ffi::Py_tp_finalize).is_null();
        TypeFacts {
            traverse,
            finalizes,
            form: if verdict != 0 || finalizes {
                Form::Other
            } else {
                Form::of(ty, kind, builtins)
            },
            kind,
            verdict,
            most_references: if verdict != 0 {
                u32::MAX
            } else if traverse.is_none() || kind == ObjectKind::Class {
                0
            } else if is_untrackable(kind) {
                FEW
            } else {
                1
            },
        }
    }
}

/// The place of a type in `TypeTable::recent`.
#[inline]
fn place(ty: *mut ffi::PyTypeObject) -> usize {
    // Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, section 6.4): the highest
    // bits of a product with 2^64 divided by the golden ratio.
    let product = (ty as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (product >> (u64::BITS - RECENT_BITS)) as usize
}

/// What kind of descriptor an object is, by the slots of its type (`_PyObject_GenericGetAttrWithDict` in
/// Objects/object.c).
pub fn binding(object: &Bound<'_, PyAny>) -> Binding {
    // SAFETY: attached, and the object's type lives as long as it; these types are static.
    unsafe {
        let ty = ffi::Py_TYPE(object.as_ptr());
        let of_places = [
            &raw mut ffi::PyMemberDescr_Type,
            &raw mut ffi::PyGetSetDescr_Type,
        ];
        if of_places.contains(&ty) {
            Binding::Value
        } else if !ffi::PyType_GetSlot(ty, ffi::Py_tp_descr_set).is_null() {
            Binding::Assigned
        } else if !ffi::PyType_GetSlot(ty, ffi::Py_tp_descr_get).is_null() {
            Binding::Read
        } else {
            Binding::Value
        }
    }
}

/// True for a class made at run time, as [`is_heap_type`]; false for what is no class.
pub fn is_heap_class(class: &Bound<'_, PyAny>) -> bool {
    // SAFETY: attached, and a class is a live type.
    class
        .cast::<PyType>()
        .is_ok_and(|class| unsafe { is_heap_type(class.as_type_ptr()) })
}

/// True for a type made at run time, which can die; false for one that is part of a library.
///
/// # Safety
/// `ty` is a live type.
pub unsafe fn is_heap_type(ty: *mut ffi::PyTypeObject) -> bool {
    // SAFETY: by this function's contract.
    unsafe { ffi::PyType_GetFlags(ty) & ffi::Py_TPFLAGS_HEAPTYPE != 0 }
}
