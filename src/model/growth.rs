//! What grows with the steps of a program: the model, as the package writes it in JSON.

use serde::{Deserialize, Serialize};

/// The groups of tensors that grow, and how much there was at each sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GrowthReport {
    /// Version of this format: 1.
    pub schema: u32,
    /// When it was written, in seconds since 1970-01-01 UTC.
    pub time: f64,
    /// How many steps there had been, and in every so manieth there was a sample.
    pub steps: u64,
    pub every: u64,
    /// What the samples have taken, in seconds and of the program's time.
    pub samples: u64,
    /// So many samples it takes to tell anything.
    pub needed: u64,
    pub seconds: f64,
    pub share: f64,
    pub found: Vec<Growth>,
    /// All tensors that Python saw.
    pub all: Vec<Sample>,
    /// What PyTorch's allocator had handed out on all GPUs; empty where none is used.
    pub allocated: Vec<Sample>,
    /// What to know about it.
    pub notes: Vec<String>,
}

/// A group that grows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Growth {
    pub pattern: String,
    pub owner: String,
    pub summary: String,
    pub advice: String,
    /// At which step it was clear.
    pub step: u64,
    pub tensors: u64,
    pub bytes: u64,
    pub bytes_per_step: f64,
    pub example: String,
    pub allocated_at: Option<String>,
    /// What there was of the group at each sample; empty for what does not grow in number.
    pub history: Vec<Sample>,
}

/// How much there was at a step: its number, how many tensors, and bytes of their storages.
pub type Sample = (u64, u64, u64);
