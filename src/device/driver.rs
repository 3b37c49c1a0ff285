//! What the CUDA driver says of a pointer.
//!
//! The driver is asked only if the process has loaded it already, which means that a framework
//! uses it: nothing here loads it into a running program, initialises it or makes a context.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::sys;

/// What a pointer is to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointerKind {
    /// Memory of a device, by its number; managed memory included.
    Device { ordinal: i32 },
    /// Host memory that the driver knows, such as pinned memory.
    Host,
    /// Nothing the driver knows: freed, or never allocated.
    Unknown,
    /// The driver could not say: it is not loaded, too old, or returned an error.
    Unanswered,
}

/// Asks the driver about `pointer`.
///
/// `cuPointerGetAttributes` reads the driver's own table: it needs no current context, touches no
/// stream, and is allowed while a graph is being captured.
pub fn pointer_kind(pointer: u64) -> PointerKind {
    if !loaded() || !usable() {
        return PointerKind::Unanswered;
    }
    let mut attributes = [
        sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED,
    ];
    let mut memory_type = 0u32;
    let mut ordinal = -2i32;
    let mut managed = 0u32;
    let mut values = [
        (&raw mut memory_type).cast(),
        (&raw mut ordinal).cast(),
        (&raw mut managed).cast(),
    ];
    // SAFETY: both arrays have the length that is passed, and each value has the size that the
    // driver's documentation gives for its attribute. A pointer the driver does not know is no
    // error: it gets zeros.
    let result = unsafe {
        sys::cuPointerGetAttributes(
            attributes.len() as u32,
            attributes.as_mut_ptr(),
            values.as_mut_ptr(),
            pointer,
        )
    };
    if result != sys::CUresult::CUDA_SUCCESS {
        return PointerKind::Unanswered;
    }
    const HOST: u32 = sys::CUmemorytype::CU_MEMORYTYPE_HOST as u32;
    const DEVICE: u32 = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE as u32;
    match memory_type {
        DEVICE => PointerKind::Device { ordinal },
        _ if managed != 0 => PointerKind::Device { ordinal },
        HOST => PointerKind::Host,
        _ => PointerKind::Unknown,
    }
}

/// True if this machine has the driver's library, whether or not the process uses it.
///
/// Opens the library and closes it again; does not call it.
pub fn driver_present() -> bool {
    // SAFETY: opening the driver's library runs its initialisers, as any CUDA program does;
    // they do not initialise CUDA.
    loaded() || unsafe { sys::is_culib_present() }
}

/// True once the process has the driver's library loaded.
fn loaded() -> bool {
    static LOADED: AtomicBool = AtomicBool::new(false);
    if LOADED.load(Ordering::Relaxed) {
        return true;
    }
    let found = is_mapped();
    if found {
        LOADED.store(true, Ordering::Relaxed);
    }
    found
}

#[cfg(unix)]
fn is_mapped() -> bool {
    [c"libcuda.so.1", c"libcuda.so"].iter().any(|name| {
        // SAFETY: with RTLD_NOLOAD, dlopen only looks for a library that is there already; a
        // handle it returns is given back at once, which leaves the library as it was.
        unsafe {
            let handle = libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if handle.is_null() {
                // The failed look-up left a message for dlerror; take it.
                libc::dlerror();
                false
            } else {
                libc::dlclose(handle);
                true
            }
        }
    })
}

#[cfg(not(unix))]
fn is_mapped() -> bool {
    // Elsewhere there is no cheap way to ask. A framework that proposes a CUDA pointer has
    // loaded the driver, so this only finds what is loaded.
    // SAFETY: as in `driver_present`.
    unsafe { sys::is_culib_present() }
}

/// True if the driver has the one function that is needed; found out once.
///
/// cudarc panics where a library or a symbol is missing, so both are looked for first.
fn usable() -> bool {
    static USABLE: OnceLock<bool> = OnceLock::new();
    *USABLE.get_or_init(|| {
        // SAFETY: `culib` opens the library that `loaded` found; the symbol is only looked up.
        catch_unwind(AssertUnwindSafe(|| unsafe {
            sys::is_culib_present()
                && sys::culib()
                    .get::<unsafe extern "C" fn()>(b"cuPointerGetAttributes")
                    .is_ok()
        }))
        .unwrap_or(false)
    })
}
