//! What TensorFlow's tensors have in C++, asked without the functions of its Python class.
//!
//! Those that say how large a tensor is (`_num_elements`, `_shape_tuple`, `_rank`) let other threads run, which must not
//! happen while the objects of a snapshot are held: TensorFlow fills a tuple with a shape while others may run, which fails
//! if anybody else holds the tuple. `_datatype_enum` crashes on a tensor that is still being made. The functions of the C
//! API that they call (tensorflow/c/eager/c_api.h) are asked instead.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;

use pyo3::prelude::*;
use pyo3::types::PyType;

use super::framework::Unread;
use crate::cpython::{Descriptor, int_value};

/// Where tensors have their handle, behind the head of the object and what is left for its base (`EagerTensor` in
/// tensorflow/python/eager/pywrap_tensor.cc). The number of the tensor follows, which says whether this is so.
const HANDLE: usize = 80;
const NUMBER: usize = 88;

type Status = *mut c_void;
type Text = unsafe extern "C" fn(*mut c_void, Status) -> *const c_char;

/// The functions of the C API by which handles are read.
pub struct Handles {
    number: Descriptor,
    element_type: unsafe extern "C" fn(*mut c_void) -> c_int,
    count: unsafe extern "C" fn(*mut c_void, Status) -> i64,
    device: Text,
    backing_device: Text,
    code: unsafe extern "C" fn(Status) -> c_int,
    delete_status: unsafe extern "C" fn(Status),
    status: Status,
}

/// The handle of a tensor that has one.
pub struct Handle<'a> {
    functions: &'a Handles,
    address: NonNull<c_void>,
}

impl Handles {
    /// # Errors
    /// If this build of TensorFlow does not have what is needed.
    pub fn new(tensor: &Bound<'_, PyType>) -> Result<Self, Unread> {
        let size = tensor.getattr("__basicsize__")?.extract::<usize>()?;
        if size < NUMBER + size_of::<i64>() {
            return Err(Unread::Never);
        }
        let number = Descriptor::of(tensor, "_id")?;
        let library = library_of(tensor).ok_or(Unread::Never)?;
        // SAFETY: these are the types of the functions in tensorflow/c/eager/c_api.h and tensorflow/c/tf_status.h.
        // The library is that of a module that Python has imported, and stays.
        let found = unsafe {
            (|| {
                let new_status = *library
                    .get::<unsafe extern "C" fn() -> Status>(b"TF_NewStatus\0")
                    .ok()?;
                Some(Self {
                    number,
                    element_type: *library.get(b"TFE_TensorHandleDataType\0").ok()?,
                    count: *library.get(b"TFE_TensorHandleNumElements\0").ok()?,
                    device: *library.get(b"TFE_TensorHandleDeviceName\0").ok()?,
                    backing_device: *library.get(b"TFE_TensorHandleBackingDeviceName\0").ok()?,
                    code: *library.get(b"TF_GetCode\0").ok()?,
                    delete_status: *library.get(b"TF_DeleteStatus\0").ok()?,
                    status: new_status(),
                })
            })()
        };
        found.ok_or(Unread::Never)
    }

    /// The handle of a tensor; `None` while the tensor is being made, and if it does not lie as is known.
    pub fn of(&self, tensor: &Bound<'_, PyAny>) -> Option<Handle<'_>> {
        let number = int_value(&self.number.get(tensor)?)?;
        // SAFETY: attached, and the object has the class whose size was checked.
        let (address, lies_there) = unsafe {
            let tensor = tensor.as_ptr().cast::<u8>();
            (
                *tensor.add(HANDLE).cast::<*mut c_void>(),
                *tensor.add(NUMBER).cast::<i64>(),
            )
        };
        let address = NonNull::new(address).filter(|_| lies_there == number)?;
        Some(Handle {
            functions: self,
            address,
        })
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        // SAFETY: made by `TF_NewStatus`, and used no more.
        unsafe { (self.delete_status)(self.status) };
    }
}

impl Handle<'_> {
    /// The number of the element type.
    pub fn element_type(&self) -> i64 {
        // SAFETY: the handle is that of a live tensor, and has its type from the beginning.
        i64::from(unsafe { (self.functions.element_type)(self.address.as_ptr()) })
    }

    /// How many elements the tensor has. Waits until that is known if operations run asynchronously.
    pub fn count(&self) -> Option<u64> {
        let functions = self.functions;
        // SAFETY: as above; the status is written, and read below.
        let count = unsafe { (functions.count)(self.address.as_ptr(), functions.status) };
        self.is_well().then(|| u64::try_from(count).ok())?
    }

    /// The device of the operation that made the tensor.
    pub fn device(&self) -> Option<String> {
        self.text(self.functions.device)
    }

    /// The device in whose memory the tensor is.
    pub fn backing_device(&self) -> Option<String> {
        self.text(self.functions.backing_device)
    }

    fn text(&self, ask: Text) -> Option<String> {
        // SAFETY: as above. The text is the handle's own, or null after an error.
        unsafe {
            let text = ask(self.address.as_ptr(), self.functions.status);
            let is_text = self.is_well() && !text.is_null();
            is_text.then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    }

    fn is_well(&self) -> bool {
        // SAFETY: made by `TF_NewStatus`.
        unsafe { (self.functions.code)(self.functions.status) == 0 }
    }
}

/// The library whose code frees tensors; what it depends on is searched with it.
#[cfg(unix)]
fn library_of(tensor: &Bound<'_, PyType>) -> Option<libloading::os::unix::Library> {
    use libloading::os::unix::{Library, RTLD_LAZY};
    use pyo3::ffi;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: attached; the slot is that of a live type, and `dladdr` fills in `info` or returns 0. The name is that of a
    // library in use. With RTLD_NOLOAD nothing is loaded, so no initialiser runs.
    unsafe {
        let free = ffi::PyType_GetSlot(tensor.as_type_ptr(), ffi::Py_tp_dealloc);
        let mut info: libc::Dl_info = std::mem::zeroed();
        if free.is_null() || libc::dladdr(free, &raw mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        let name = OsStr::from_bytes(CStr::from_ptr(info.dli_fname).to_bytes());
        Library::open(Some(name), RTLD_LAZY | libc::RTLD_NOLOAD).ok()
    }
}

/// Not known: TensorFlow's names of its libraries on Windows.
#[cfg(windows)]
fn library_of(_: &Bound<'_, PyType>) -> Option<libloading::os::windows::Library> {
    None
}
