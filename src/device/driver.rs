//! What the CUDA driver says of a pointer.
//!
//! The driver is asked only if the process has loaded it already, which means that a framework
//! uses it: nothing here loads it into a running program, initialises it or makes a context.
//!
//! cudarc describes the driver's functions and values. Its loader is not used: it opens the first
//! `libcuda.so` that the system finds, which need not be the one that the process uses, and panics
//! where a function is missing.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys::{CUdeviceptr, CUmemorytype, CUpointer_attribute, CUresult};

use crate::cpython::fork_count;

/// What a pointer is to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointerKind {
    /// Memory of a device; managed memory included. The device's number, where the driver has one.
    Device { ordinal: Option<u32> },
    /// Host memory that the driver knows, such as pinned memory.
    Host,
    /// Nothing the driver knows: freed, or never allocated.
    Unknown,
    /// The driver could not say: it is not loaded, too old, or returned an error.
    Unanswered,
}

/// `cuPointerGetAttributes`.
type GetAttributes = unsafe extern "C" fn(
    c_uint,
    *mut CUpointer_attribute,
    *mut *mut c_void,
    CUdeviceptr,
) -> CUresult;

/// The driver that the process uses.
struct Driver {
    get_attributes: GetAttributes,
    /// The forks before it was found. After another one it is the parent's.
    forks: u32,
}

/// Asks the driver about `pointer`.
///
/// `cuPointerGetAttributes` reads the driver's own table: it needs no current context, touches no
/// stream, and is allowed while a graph is being captured.
pub fn pointer_kind(pointer: u64) -> PointerKind {
    match driver() {
        Some(driver) if driver.forks == fork_count() => ask(driver.get_attributes, pointer),
        _ => PointerKind::Unanswered,
    }
}

fn ask(get_attributes: GetAttributes, pointer: u64) -> PointerKind {
    let mut attributes = [
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED,
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
    // driver's documentation gives for its attribute (`managed` is a bool, of one byte, in zeros).
    // A pointer the driver does not know is no error: it gets zeros.
    let result = unsafe {
        get_attributes(
            attributes.len() as c_uint,
            attributes.as_mut_ptr(),
            values.as_mut_ptr(),
            pointer,
        )
    };
    if result != CUresult::CUDA_SUCCESS {
        return PointerKind::Unanswered;
    }
    const HOST: u32 = CUmemorytype::CU_MEMORYTYPE_HOST as u32;
    const DEVICE: u32 = CUmemorytype::CU_MEMORYTYPE_DEVICE as u32;
    let device = PointerKind::Device {
        ordinal: u32::try_from(ordinal).ok(),
    };
    match memory_type {
        DEVICE => device,
        _ if managed != 0 => device,
        HOST => PointerKind::Host,
        _ => PointerKind::Unknown,
    }
}

/// The names of the GPUs that the process uses, by their numbers.
///
/// Empty if the process has not loaded the driver or not initialised it: then every function of the
/// driver answers `CUDA_ERROR_NOT_INITIALIZED`, and nothing changes that here. Once they are known they
/// are not asked for again: the program waits for this at every collection that frees a leak.
pub fn gpu_names() -> Vec<String> {
    static NAMES: OnceLock<Vec<String>> = OnceLock::new();
    if driver().is_none_or(|driver| driver.forks != fork_count()) {
        return Vec::new();
    }
    if let Some(names) = NAMES.get() {
        return names.clone();
    }
    let names = ask_for_names();
    if names.is_empty() {
        return names;
    }
    NAMES.get_or_init(|| names).clone()
}

fn ask_for_names() -> Vec<String> {
    let Some(library) = loaded_library() else {
        return Vec::new();
    };
    // SAFETY: the symbols of these names, of the driver's library, are functions of these types.
    let functions = unsafe {
        let count = library.get::<GetCount>(b"cuDeviceGetCount\0");
        let device = library.get::<GetDevice>(b"cuDeviceGet\0");
        let name = library.get::<GetName>(b"cuDeviceGetName\0");
        match (count, device, name) {
            (Ok(count), Ok(device), Ok(name)) => Some((*count, *device, *name)),
            _ => None,
        }
    };
    let names = functions.map(|(count, device, name)| named(count, device, name));
    // Not closed, as above.
    std::mem::forget(library);
    names.unwrap_or_default()
}

/// `cuDeviceGetCount`, `cuDeviceGet` and `cuDeviceGetName`.
type GetCount = unsafe extern "C" fn(*mut c_int) -> CUresult;
type GetDevice = unsafe extern "C" fn(*mut c_int, c_int) -> CUresult;
type GetName = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> CUresult;

fn named(get_count: GetCount, get_device: GetDevice, get_name: GetName) -> Vec<String> {
    let mut count = 0;
    // SAFETY: the function writes one number.
    if unsafe { get_count(&raw mut count) } != CUresult::CUDA_SUCCESS {
        return Vec::new();
    }
    let name = |ordinal: c_int| {
        let mut device = 0;
        let mut bytes = [0u8; 256];
        // SAFETY: the one writes a number; the other at most the given number of characters, the
        // last one 0.
        let results = unsafe {
            [
                get_device(&raw mut device, ordinal),
                get_name(bytes.as_mut_ptr().cast(), bytes.len() as c_int, device),
            ]
        };
        let text = std::ffi::CStr::from_bytes_until_nul(&bytes).ok()?;
        let known = results
            .iter()
            .all(|result| *result == CUresult::CUDA_SUCCESS);
        known.then(|| text.to_string_lossy().into_owned())
    };
    (0..count).map_while(name).collect()
}

/// True if this machine has a CUDA driver, whether or not the process uses it.
///
/// Goes by the files that the driver puts there; the library is not opened.
pub fn driver_present() -> bool {
    driver().is_some()
        || DRIVER_FILES
            .iter()
            .any(|file| std::path::Path::new(file).exists())
}

/// Where a driver shows: its devices, on Linux, its paravirtual device under WSL, and its GPU on
/// Jetson boards; its library, on Windows.
const DRIVER_FILES: &[&str] = if cfg!(windows) {
    &["C:\\Windows\\System32\\nvcuda.dll"]
} else {
    &[
        "/dev/nvidiactl",
        "/dev/dxg",
        "/dev/nvhost-gpu",
        "/dev/nvgpu",
    ]
};

/// The driver, once the process has loaded it. Until then it is looked for again whenever the process has
/// loaded something since.
fn driver() -> Option<&'static Driver> {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    static LOADS_BEFORE: AtomicU64 = AtomicU64::new(u64::MAX);
    if let Some(known) = DRIVER.get() {
        return known.as_ref();
    }
    let loads = loads();
    if loads.is_some_and(|loads| LOADS_BEFORE.swap(loads, Ordering::Relaxed) == loads) {
        return None;
    }
    let library = loaded_library()?;
    let found = DRIVER.get_or_init(|| {
        // SAFETY: the symbol of this name, of the driver's library, is a function of this type.
        // The library is never closed, below, so the function stays.
        let function = unsafe { library.get::<GetAttributes>(b"cuPointerGetAttributes\0") };
        Some(Driver {
            get_attributes: *function.ok()?,
            forks: fork_count(),
        })
    });
    std::mem::forget(library);
    found.as_ref()
}

/// How many libraries the process has ever loaded; `None` if there is no telling. It takes 20 ns, where a
/// search for one takes as many microseconds or more, and waits for no library that is being initialised.
#[cfg(target_os = "linux")]
fn loads() -> Option<u64> {
    unsafe extern "C" fn read(
        info: *mut libc::dl_phdr_info,
        size: libc::size_t,
        loads: *mut c_void,
    ) -> c_int {
        // SAFETY: called with a description of so many bytes, and with what is given below.
        unsafe {
            if size > std::mem::offset_of!(libc::dl_phdr_info, dlpi_adds) {
                *loads.cast() = Some((*info).dlpi_adds);
            }
        }
        // No more of them.
        1
    }
    let mut loads: Option<u64> = None;
    // SAFETY: the function keeps to the type, and `loads` is there all the while.
    unsafe { libc::dl_iterate_phdr(Some(read), (&raw mut loads).cast()) };
    loads
}

#[cfg(not(target_os = "linux"))]
fn loads() -> Option<u64> {
    None
}

/// The driver's library, if the process has loaded it.
#[cfg(unix)]
fn loaded_library() -> Option<libloading::os::unix::Library> {
    use libloading::os::unix::{Library, RTLD_LAZY};
    ["libcuda.so.1", "libcuda.so"].into_iter().find_map(|name| {
        // SAFETY: with RTLD_NOLOAD nothing is loaded, so no initialiser runs.
        unsafe { Library::open(Some(name), RTLD_LAZY | libc::RTLD_NOLOAD) }.ok()
    })
}

/// The driver's library, if the process has loaded it.
#[cfg(windows)]
fn loaded_library() -> Option<libloading::os::windows::Library> {
    libloading::os::windows::Library::open_already_loaded("nvcuda.dll").ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn loaded_libraries_are_counted() {
        assert!(loads().is_some_and(|loads| loads > 0));
    }

    /// A driver that knows four pointers.
    unsafe extern "C" fn stand_in(
        count: c_uint,
        attributes: *mut CUpointer_attribute,
        values: *mut *mut c_void,
        pointer: CUdeviceptr,
    ) -> CUresult {
        let (memory_type, ordinal, managed) = match pointer {
            0x1000 => (CUmemorytype::CU_MEMORYTYPE_DEVICE as u32, 3, false),
            0x2000 => (CUmemorytype::CU_MEMORYTYPE_HOST as u32, 0, false),
            0x3000 => (CUmemorytype::CU_MEMORYTYPE_HOST as u32, 1, true),
            0x4000 => return CUresult::CUDA_ERROR_NOT_INITIALIZED,
            0x5000 => (CUmemorytype::CU_MEMORYTYPE_DEVICE as u32, -2, true),
            _ => (0, -2, false),
        };
        for i in 0..count as usize {
            // SAFETY: called by `ask`, which passes `count` attributes and values, each value of
            // the size that the driver documents.
            unsafe {
                let value = *values.add(i);
                match *attributes.add(i) {
                    CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE => {
                        value.cast::<u32>().write(memory_type);
                    }
                    CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => {
                        value.cast::<i32>().write(ordinal);
                    }
                    CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED => {
                        value.cast::<bool>().write(managed);
                    }
                    _ => return CUresult::CUDA_ERROR_INVALID_VALUE,
                }
            }
        }
        CUresult::CUDA_SUCCESS
    }

    #[test]
    fn the_answers_of_a_driver() {
        let device = |ordinal| PointerKind::Device { ordinal };
        assert_eq!(ask(stand_in, 0x1000), device(Some(3)));
        assert_eq!(ask(stand_in, 0x2000), PointerKind::Host);
        assert_eq!(ask(stand_in, 0x3000), device(Some(1)), "managed memory");
        assert_eq!(ask(stand_in, 0x4000), PointerKind::Unanswered);
        assert_eq!(ask(stand_in, 0x5000), device(None), "managed, of no device");
        assert_eq!(ask(stand_in, 0x6000), PointerKind::Unknown);
    }

    #[test]
    fn a_driver_that_is_not_loaded_is_not_asked() {
        // The tests are plain Rust: nothing in their process uses CUDA.
        assert_eq!(pointer_kind(0x1000), PointerKind::Unanswered);
        assert!(driver().is_none());
        assert!(gpu_names().is_empty());
    }

    unsafe extern "C" fn two(count: *mut c_int) -> CUresult {
        // SAFETY: called by `named` with a number to write to.
        unsafe { count.write(2) };
        CUresult::CUDA_SUCCESS
    }

    unsafe extern "C" fn none_yet(_: *mut c_int) -> CUresult {
        CUresult::CUDA_ERROR_NOT_INITIALIZED
    }

    unsafe extern "C" fn same(device: *mut c_int, ordinal: c_int) -> CUresult {
        // SAFETY: called by `named` with a number to write to.
        unsafe { device.write(ordinal) };
        CUresult::CUDA_SUCCESS
    }

    unsafe extern "C" fn letter(name: *mut c_char, _: c_int, device: c_int) -> CUresult {
        // SAFETY: called by `named` with room for more than two characters, all 0.
        unsafe { name.write(b'A' as c_char + device as c_char) };
        CUresult::CUDA_SUCCESS
    }

    #[test]
    fn the_names_of_the_devices() {
        assert_eq!(named(two, same, letter), ["A", "B"]);
        assert!(named(none_yet, same, letter).is_empty());
    }
}
