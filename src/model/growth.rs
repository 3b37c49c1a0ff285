//! Growth with the number of steps: the model.

use serde::{Deserialize, Serialize};

/// The growing groups of tensors, and their size at each sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "python", pyo3::pyclass(frozen, module = "cyclescope"))]
pub struct GrowthReport {
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
    pub found: Vec<Grown>,
    /// All tensors visible from Python.
    pub all: Vec<Sample>,
    /// Bytes allocated by PyTorch on all GPUs; empty if none is used.
    pub allocated: Vec<Sample>,
    /// Remarks about the result.
    pub notes: Vec<String>,
}

/// A growing group with its size at each sample; empty if its number does not grow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Grown {
    #[serde(flatten)]
    pub growth: Growth,
    pub history: Vec<Sample>,
}

/// A growing group, as it was when it was detected.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, get_all, eq, module = "cyclescope")
)]
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
}

/// A sample: the step, the number of tensors, and the bytes of their storages.
pub type Sample = (u64, u64, u64);

impl GrowthReport {
    /// True while there are too few samples to tell anything.
    pub fn is_early(&self) -> bool {
        self.found.is_empty() && self.samples < self.needed
    }
}
