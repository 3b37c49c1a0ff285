//! What closing a generator does.

/// True if `generator.close()` drops the generator's variables.
///
/// On CPython 3.12.2 and 3.12.3 it keeps them until the generator itself goes (`gen_close` in
/// `Objects/genobject.c`, gh-118272).
pub fn close_drops_variables() -> bool {
    !["3.12.2", "3.12.3"].contains(&version())
}

#[cfg(feature = "python")]
fn version() -> &'static str {
    // SAFETY: the function may be called at any time; its result is a constant of the interpreter's, which ends with
    // a zero.
    let text = unsafe { std::ffi::CStr::from_ptr(pyo3::ffi::Py_GetVersion()) };
    let number = text.to_str().unwrap_or_default().split([' ', '+']).next();
    number.unwrap_or_default()
}

#[cfg(not(feature = "python"))]
fn version() -> &'static str {
    ""
}

#[cfg(all(test, feature = "python"))]
mod tests {
    use pyo3::prelude::*;

    use super::*;

    #[test]
    fn closing_does_what_is_said() -> PyResult<()> {
        Python::attach(|py| {
            let code = c"
def suspended(kept):
    yield

class Kept: pass

import weakref
kept = Kept()
seen = weakref.ref(kept)
generator = suspended(kept)
next(generator)
del kept
generator.close()
dropped = seen() is None
";
            let names = pyo3::types::PyDict::new(py);
            py.run(code, Some(&names), None)?;
            let dropped: bool = names.as_any().get_item("dropped")?.extract()?;
            assert_eq!(close_drops_variables(), dropped);
            Ok(())
        })
    }
}
