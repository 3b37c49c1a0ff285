//! The earlier report that a report is compared with.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::source::Location;

/// The leaks of an earlier report, by which those of a report are new, have grown or are gone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
#[non_exhaustive]
pub struct Earlier {
    /// As [`super::report::Report::time`].
    pub time: f64,
    /// Bytes that each of its leaks held which the later report has too, by the signature there.
    pub bytes_held: BTreeMap<String, u64>,
    /// Those that the later report does not have, largest first.
    pub gone: Vec<Gone>,
}

/// A leak that an earlier report has and a later one has not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
#[non_exhaustive]
pub struct Gone {
    /// These five as in [`super::report::Leak`].
    pub signature: String,
    pub pattern: Option<String>,
    pub summary: String,
    pub count: u64,
    pub bytes_held: u64,
    /// The line that was to be changed.
    pub location: Option<Location>,
}
