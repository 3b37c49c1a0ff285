//! Post-mortem of a failed request for memory: the model, as the package writes it in JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::growth::Growth;

/// Why memory ran out, with the numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PostMortem {
    /// Version of this format: 1.
    pub schema: u32,
    pub verdict: String,
    pub headline: String,
    pub advice: String,
    /// In seconds since 1970-01-01 UTC.
    pub time: f64,
    pub device: String,
    pub numbers: Option<Numbers>,
    /// The Python stack of the request, innermost first.
    pub requested_at: Vec<String>,
    pub cycles: Option<Finding>,
    /// The leak trace of the cycles.
    pub trace: String,
    /// Containers that keep tensors with their graphs.
    pub graphs: Vec<Finding>,
    /// Bytes by category.
    pub roles: BTreeMap<String, u64>,
    pub owners: Vec<Finding>,
    pub growth: Vec<Growth>,
    /// The parts that were not examined, with the reason.
    pub left_out: Vec<String>,
    pub seconds: f64,
}

/// One holder of memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Finding {
    pub what: String,
    pub bytes: u64,
    /// True if the request would fit without it.
    pub would_fit: Option<bool>,
    pub details: Vec<String>,
}

/// The state of the device's memory, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Numbers {
    pub requested: u64,
    pub limit: u64,
    pub free: u64,
    pub reserved: u64,
    pub allocated: u64,
    pub elsewhere: Option<u64>,
    pub largest_free_block: u64,
    pub free_in_blocks: u64,
    pub private: u64,
}
