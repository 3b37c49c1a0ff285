//! The attributes of an instance, read without making its `__dict__`.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::descriptor::Descriptor;
use super::inline_values::{AttributeLayout, MANAGED_DICT, flags_of};
use super::read::{dict_items, find_item, int_value, text_of};

/// How the attributes of instances are read.
pub struct Instances {
    /// Where instances have their attributes, from 3.11 on.
    pub layout: Option<AttributeLayout>,
    dictoffset: Descriptor,
    basicsize: Descriptor,
    itemsize: Descriptor,
}

impl Instances {
    /// # Errors
    /// If the interpreter lacks one of the descriptors.
    pub fn new(py: Python<'_>) -> PyResult<Self> {
        let class = py.get_type::<PyType>();
        Ok(Self {
            layout: AttributeLayout::known(py)?,
            dictoffset: Descriptor::of(&class, "__dictoffset__")?,
            basicsize: Descriptor::of(&class, "__basicsize__")?,
            itemsize: Descriptor::of(&class, "__itemsize__")?,
        })
    }

    /// True if the objects of a class have a dictionary for their attributes, or may have one.
    pub fn have_dict(&self, class: &Bound<'_, PyType>) -> bool {
        let offset = self.dictoffset.get(class.as_any());
        let offset = offset.and_then(|offset| int_value(&offset));
        flags_of(class) & MANAGED_DICT != 0 || offset.is_some_and(|offset| offset != 0)
    }
}

/// The address of an object's instance dictionary; `None` if it has none, or none yet.
pub fn instance_dict(instances: &Instances, object: &Bound<'_, PyAny>) -> Option<usize> {
    let class = object.get_type();
    let number = |part: &crate::cpython::Descriptor| int_value(&part.get(class.as_any())?);
    let dict = if flags_of(&class) & MANAGED_DICT != 0 {
        instances.layout?.managed_dict(object)
    } else {
        let word = size_of::<usize>();
        let offset = match number(&instances.dictoffset)? {
            0 => return None,
            offset @ 1.. => usize::try_from(offset).ok()?,
            from_end => {
                // SAFETY: attached; a type whose dictionary is found from the end has objects with a size.
                let items = unsafe { ffi::Py_SIZE(object.as_ptr()) }.unsigned_abs();
                let fixed = usize::try_from(number(&instances.basicsize)?).ok()?;
                let each = usize::try_from(number(&instances.itemsize)?).ok()?;
                let size = (fixed + items * each).next_multiple_of(word);
                size.checked_sub(usize::try_from(from_end.unsigned_abs()).ok()?)?
            }
        };
        if !offset.is_multiple_of(word) {
            return None;
        }
        // SAFETY: the object is alive, and its type says that the address of its dictionary lies there
        // (`_PyObject_ComputedDictPointer` in Objects/object.c).
        unsafe { *object.as_ptr().cast::<usize>().byte_add(offset) }
    };
    (dict != 0).then_some(dict)
}

/// The attributes of an object that has their values itself, with the addresses of what they refer to.
pub fn inline_values(instances: &Instances, object: &Bound<'_, PyAny>) -> Vec<(String, usize)> {
    let class = object.get_type();
    let size = instances.basicsize.get(class.as_any());
    let size = size.and_then(|size| usize::try_from(int_value(&size)?).ok());
    match (instances.layout, size) {
        (Some(layout), Some(size)) => layout.read_values(object, flags_of(&class), size),
        _ => Vec::new(),
    }
}

/// An attribute of an object that has them as instances of a class made in Python do.
pub fn attribute<'py>(
    instances: &Instances,
    object: &Bound<'py, PyAny>,
    name: &str,
) -> Option<Bound<'py, PyAny>> {
    let held = |address: usize| {
        // SAFETY: attached; the object refers to it, be it as its dictionary or as an attribute.
        unsafe { Bound::from_borrowed_ptr(object.py(), address as *mut ffi::PyObject) }
    };
    let values = inline_values(instances, object);
    let inline = values.into_iter().find(|(known, _)| known == name);
    inline.map(|(_, value)| held(value)).or_else(|| {
        let dict = held(instance_dict(instances, object)?);
        find_item(name, |f| dict_items(&dict, f))
    })
}

/// All attributes of such an object, with their names; none whose name is no string.
pub fn attributes<'py>(
    instances: &Instances,
    object: &Bound<'py, PyAny>,
) -> Vec<(String, Bound<'py, PyAny>)> {
    let held = |address: usize| {
        // SAFETY: attached; the object refers to it, be it as its dictionary or as an attribute.
        unsafe { Bound::from_borrowed_ptr(object.py(), address as *mut ffi::PyObject) }
    };
    let mut found: Vec<(String, Bound<'py, PyAny>)> = inline_values(instances, object)
        .into_iter()
        .map(|(name, value)| (name, held(value)))
        .collect();
    // From 3.13 on a dictionary may have the same values.
    if found.is_empty()
        && let Some(dict) = instance_dict(instances, object)
    {
        dict_items(&held(dict), &mut |name, value| {
            found.extend(text_of(name).map(|name| (name, value.clone())));
            true
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpython::read::referents;

    #[test]
    fn attributes_are_read_without_making_a_dictionary() {
        Python::attach(|py| {
            let instances = Instances::new(py).expect("CPython has all of them");
            assert_eq!(instances.layout.is_some(), py.version_info() >= (3, 11));
            let made = py.eval(
                c"type('Made', (), {'__init__': lambda it: it.__setattr__('a', it)})()",
                None,
                None,
            );
            let made = made.expect("it is valid");
            let before = referents(&made);
            let found = attribute(&instances, &made, "a").expect("it is set");
            assert!(found.is(&made));
            assert!(attribute(&instances, &made, "b").is_none());
            assert_eq!(referents(&made), before);
        });
    }
}
