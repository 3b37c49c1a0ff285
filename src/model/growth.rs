//! Growth with the number of steps: the model, as the package writes it in JSON.

use serde::{Deserialize, Serialize};

/// The growing groups of tensors, and their size at each sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GrowthReport {
    /// Version of this format: 1.
    pub schema: u32,
    /// When it was written, in seconds since 1970-01-01 UTC.
    pub time: f64,
    /// Number of steps so far, and number of steps between samples.
    pub steps: u64,
    pub every: u64,
    /// Time spent on samples, in seconds and as a fraction of the program's time.
    pub samples: u64,
    /// Number of samples needed before growth is detected.
    pub needed: u64,
    pub seconds: f64,
    pub share: f64,
    pub found: Vec<Growth>,
    /// All tensors visible from Python.
    pub all: Vec<Sample>,
    /// Bytes allocated by PyTorch on all GPUs; empty if none is used.
    pub allocated: Vec<Sample>,
    /// Remarks about the result.
    pub notes: Vec<String>,
}

/// A growing group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Growth {
    pub pattern: String,
    pub owner: String,
    pub summary: String,
    pub advice: String,
    /// The step at which the growth was detected.
    pub step: u64,
    pub tensors: u64,
    pub bytes: u64,
    pub bytes_per_step: f64,
    pub example: String,
    pub allocated_at: Option<String>,
    /// The size of the group at each sample; empty if its number does not grow.
    pub history: Vec<Sample>,
}

/// A sample: the step, the number of tensors, and the bytes of their storages.
pub type Sample = (u64, u64, u64);
