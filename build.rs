//! Refuses to build for a free-threaded Python, in one sentence.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "python")]
    refuse_free_threading();
}

/// Its objects have another layout, and other threads change them while they are read: what is built
/// for it would find nothing, and say that there is nothing.
#[cfg(feature = "python")]
fn refuse_free_threading() {
    use pyo3_build_config::BuildFlag;
    let flags = pyo3_build_config::get().build_flags();
    if flags.0.contains(&BuildFlag::Py_GIL_DISABLED) {
        println!(
            "cargo::error=cyclescope does not support free-threaded Python yet, because objects \
             have another memory layout there. Install it in a Python with the GIL (python3.14, \
             not python3.14t)."
        );
    }
}
