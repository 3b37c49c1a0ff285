//! Finds the reference cycles that hold GPU memory in Python programs.
//!
//! The rooms of the crate, each of which knows only those before it:
//!
//! | room | what it does |
//! |---|---|
//! | [`hook`] | watches collections, takes their garbage, breaks it |
//! | [`heap`] | reads CPython objects: references, their names, labels, places in source |
//! | [`device`] | says which device memory an object holds |
//! | [`graph`] | components, cycles, paths and cuts of the object graph |
//! | [`diagnose`] | from graph facts to a leak: signature, pattern, advice |
//! | [`report`] | the serde model and its renderings |
//!
//! [`Inspector`] ties them together for a program that embeds Python; [`watch`] keeps an eye on every
//! collection; the Python package is made of both. Without the feature `python` only the rooms
//! from `graph` on do anything, and no interpreter is needed.

pub mod device;
pub mod diagnose;
pub mod graph;
pub mod heap;
pub mod hook;
pub mod report;

#[cfg(feature = "python")]
mod inspector;
#[cfg(feature = "python")]
mod python;
#[cfg(feature = "python")]
pub mod watch;

pub use device::DeviceSelection;
#[cfg(feature = "python")]
pub use inspector::Inspector;
