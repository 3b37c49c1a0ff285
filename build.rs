//! Says by a `cfg` which kind of Python is built for (`Py_GIL_DISABLED`).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "python")]
    pyo3_build_config::use_pyo3_cfgs();
}
