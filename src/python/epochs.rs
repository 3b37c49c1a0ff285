//! Checks of new objects only.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::prelude::*;

use super::report::CycleReport;
use super::selection;
use super::state::{state, state_for_look};
use crate::analysis::Inspector;
use crate::model::report::Leak;
use crate::watch::Ignored;

/// As `find`, but looks only at objects made since an epoch began, or at all for epoch 0; and collects nothing if nothing
/// leaked and no weak reference to garbage has a callback. None if only a look at all tells.
#[pyfunction]
pub fn find_new(
    py: Python<'_>,
    devices: Vec<String>,
    ignore: Vec<String>,
    since: u64,
) -> PyResult<Option<CycleReport>> {
    let devices = selection(&devices)?;
    let state = state_for_look(py)?;
    let found = state.check(py, |watcher| match since {
        0 => watcher.find_if_any(py, &devices).map(Some),
        _ => watcher.find_new(py, &devices, since),
    })?;
    let Some(mut report) = found else {
        return Ok(None);
    };
    if !report.leaks.is_empty() {
        let ignored = Ignored::new(ignore);
        let redacted = state.watcher.inspector().redacts();
        let asked = Inspector::ask(py);
        let keep = |leak: &Leak| !ignored.contains(leak);
        py.detach(|| Inspector::finish(&mut report, redacted, &asked, keep));
    }
    Ok(Some(CycleReport::new(Arc::new(report))))
}

/// Begins an epoch: collects young garbage, and tells objects made from now on from earlier ones. Its number, and
/// whether nothing is known of earlier epochs; None where objects cannot be told apart so. A watch sees the collections
/// that follow, also if the program has cleared `gc.callbacks`.
#[pyfunction]
pub fn begin_epoch(py: Python<'_>) -> PyResult<Option<(u64, bool)>> {
    let state = state(py)?;
    if !state.watcher.is_idle() {
        state.ensure_hook(py)?;
    }
    state.check(py, |watcher| watcher.begin_epoch(py))
}

/// Forgets all epochs.
#[pyfunction]
pub fn forget_epochs(py: Python<'_>) -> PyResult<()> {
    state(py)?.watcher.forget_epochs(py);
    Ok(())
}

/// By signature, the epochs in which the youngest objects of each leak's cycles were made: None for those that are not
/// known, 0 for before the first.
#[pyfunction]
pub fn epochs(report: &Bound<'_, CycleReport>) -> HashMap<String, Vec<Option<u64>>> {
    report.get().epochs()
}
