//! The boxes and links that a drawing of a leak consists of.

use super::shape::Shape;
use crate::model::report::EdgeRole;

/// The boxes and links of a drawing. The first [`Scene::ring`] boxes are the cycle, in order.
pub struct Scene {
    pub ring: usize,
    /// The box of the ring from which the largest buffer hangs.
    pub focus: usize,
    pub boxes: Vec<Shape>,
    /// The first [`Scene::ring`] links are the cycle's own, each from its box to the next.
    pub links: Vec<Link>,
    /// How many objects of the leak no box stands for.
    pub omitted: u64,
    /// How many references no line stands for: those that the report leaves out, and between clusters.
    pub untold: u64,
}

/// One reference, between two boxes.
pub struct Link {
    pub from: usize,
    pub to: usize,
    /// Index of the reference in [`crate::model::report::Graph::edges`].
    pub edge: Option<usize>,
    pub label: String,
    pub title: String,
    pub role: EdgeRole,
}
