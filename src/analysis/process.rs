//! The process that a report is about.

use pyo3::prelude::*;

use crate::cpython::{imported, new_text, text_of};
use crate::model::report::Process;

/// What does not change while the process lives.
pub(super) fn process(py: Python<'_>) -> Process {
    let sys = py.import("sys").ok();
    let program = sys.as_ref().and_then(|sys| {
        sys.getattr("argv")
            .ok()?
            .get_item(0)
            .ok()?
            .extract::<String>()
            .ok()
    });
    let version = py.version_info();
    Process {
        host: host_name(),
        pid: std::process::id(),
        rank: std::env::var("RANK")
            .ok()
            .and_then(|rank| rank.parse().ok()),
        python: format!("{}.{}.{}", version.major, version.minor, version.patch),
        program: program.unwrap_or_default(),
        frameworks: Vec::new(),
        gpus: Vec::new(),
    }
}

#[cfg(unix)]
fn host_name() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the call writes at most the given number of bytes.
    let failed = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len()) } != 0;
    let end = name
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(name.len());
    if failed {
        String::new()
    } else {
        String::from_utf8_lossy(&name[..end]).into_owned()
    }
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

/// The versions of known frameworks among the imported modules, read from the modules' dictionaries.
pub(super) fn framework_versions(py: Python<'_>) -> Vec<(String, String)> {
    ["torch", "numpy", "cupy", "jax", "lightning", "transformers"]
        .into_iter()
        .filter_map(|name| {
            let module = imported(&new_text(py, name)?)?;
            let version = module.get_item(new_text(py, "__version__")?).ok()??;
            let version = text_of(&version)?;
            Some((name.to_owned(), version))
        })
        .collect()
}
