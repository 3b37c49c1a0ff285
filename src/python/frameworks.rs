//! Classes that the program registers, as having memory.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyType};

use crate::cpython::{Descriptor, Instances, text_of};
use crate::device::{Described, Frameworks, MOST_REGISTERED, Registration, add_kind, register};

/// Accepts a kind of device that PyTorch or the program has a name of its own for.
#[pyfunction]
pub fn add_device_kind(kind: &str) -> PyResult<()> {
    add_kind(kind).map_err(|error| PyValueError::new_err(format!("device: {error}")))
}

/// Registers a class whose objects have memory, with the names of the attributes that say which.
///
/// Raises TypeError if one of these could run Python code.
#[pyfunction]
#[pyo3(signature = (class, device, pointer, nbytes, device_index, dtype, shape, owner))]
#[expect(
    clippy::too_many_arguments,
    reason = "they are those of the Python function"
)]
pub fn register_framework(
    py: Python<'_>,
    class: &Bound<'_, PyAny>,
    device: String,
    pointer: String,
    nbytes: String,
    device_index: Option<String>,
    dtype: Option<String>,
    shape: Option<String>,
    owner: Option<String>,
) -> PyResult<()> {
    let class = class.cast::<PyType>()?;
    // SAFETY: attached, and the class is alive.
    if unsafe { ffi::PyType_GetFlags(class.as_type_ptr()) } & ffi::Py_TPFLAGS_TYPE_SUBCLASS != 0 {
        return Err(PyTypeError::new_err(format!(
            "{} is a metaclass: register the class whose objects hold memory",
            name_of(class)?
        )));
    }
    add_device_kind(&device)?;
    let registration = Registration {
        kind: device,
        pointer,
        bytes: nbytes,
        number: device_index,
        dtype,
        shape,
        owner,
    };
    let instances = std::rc::Rc::new(Instances::new(py)?);
    let described = registration.with(|it| Described::new(class, it, &instances));
    if let Err((name, error)) = described {
        let class = name_of(class)?;
        return Err(PyTypeError::new_err(format!(
            "{class}.{name} cannot be read: {error}"
        )));
    }
    let mut known = Frameworks::new(py, &instances)?;
    known.refresh(py);
    // SAFETY: attached, and the class is alive.
    if unsafe { known.classify(class.as_type_ptr()) } != 0 {
        let class = name_of(class)?;
        return Err(PyValueError::new_err(format!("{class} is known already")));
    }
    if !register(class, registration) {
        return Err(PyValueError::new_err(format!(
            "no more than {MOST_REGISTERED} classes can be registered"
        )));
    }
    Ok(())
}

/// The qualified name of a class, of which its metaclass is not asked.
fn name_of(class: &Bound<'_, PyType>) -> PyResult<String> {
    let name = Descriptor::of(&class.py().get_type::<PyType>(), "__qualname__")?;
    Ok(name
        .get(class.as_any())
        .and_then(|name| text_of(&name))
        .unwrap_or_default())
}
