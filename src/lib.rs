//! Finds the reference cycles that hold GPU memory in Python programs.

pub mod device;
pub mod diagnose;
pub mod graph;
pub mod heap;
pub mod hook;
pub mod report;
