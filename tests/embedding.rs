//! The example of a Rust program that embeds Python does what it says.
#![cfg(feature = "python")]

#[path = "../examples/embedding.rs"]
mod example;

use cyclescope::model::json;
use cyclescope::render::text;
use cyclescope::{DeviceSelection, Inspector};
use example::{PROGRAM, leaks_of};
use pyo3::prelude::*;
use pyo3::types::PyDict;

#[test]
fn an_embedding_program_looks_without_collecting() -> PyResult<()> {
    Python::attach(|py| -> PyResult<()> {
        let globals = PyDict::new(py);
        py.run(PROGRAM, Some(&globals), None)?;
        let inspector = Inspector::new(py)?;
        assert_eq!(inspector.find(py, &DeviceSelection::Any)?.leaks.len(), 0);

        py.run(c"leak()", Some(&globals), None)?;
        let report = leaks_of(py, &inspector, "cuda:1")?;
        let [leak] = report.leaks.as_slice() else {
            panic!("one leak expected:\n{}", text::trace(&report));
        };
        assert_eq!((leak.bytes_held, leak.count), (4096, 1));
        assert_eq!(leak.buffers[0].device, "cuda:1");
        assert_eq!(leak.buffers[0].path, [".weights"]);
        assert_eq!(leak.pattern.as_deref(), Some("closure-captures-owner"));
        assert_eq!(
            json::from_json(&json::to_json(&report)).expect("a report"),
            report
        );

        // Looking changed nothing: the garbage is still there, and still found.
        let again = leaks_of(py, &inspector, "cuda:1")?;
        assert_eq!(again.leaks[0].signature, leak.signature);
        py.run(c"gc.collect()", Some(&globals), None)?;
        assert_eq!(leaks_of(py, &inspector, "cuda:1")?.leaks.len(), 0);

        py.run(c"leak()", Some(&globals), None)?;
        assert_eq!(leaks_of(py, &inspector, "cuda:0")?.leaks.len(), 0);
        py.run(c"gc.collect()", Some(&globals), None)?;
        assert!(leaks_of(py, &inspector, "a toaster").is_err());
        Ok(())
    })?;
    example::main()
}
