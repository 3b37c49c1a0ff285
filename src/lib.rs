//! Finds the reference cycles that hold GPU memory in Python programs.

pub mod report;
