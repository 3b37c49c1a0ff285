//! What grows, but may stay within a limit that the program has for it.

use super::{Book, Moment};
use crate::analysis::told::{Followed, Told};
use crate::diagnose::growth::variants::without_deque;
use crate::diagnose::lengths::Line;
use crate::diagnose::source::Limit;
use crate::model::growth::Growth;
use crate::model::source::SourceLines;

/// Of how many is not known, it is told once it has grown for so many times as long as it takes to find growth.
const PATIENCE: u64 = 10;
/// So many more than the limit may be there for a moment.
const BEYOND: u64 = 4;

/// True for a line that keeps a list in an order which `heapq` and `bisect` need, and a deque would lose.
fn keeps_an_order(source: &SourceLines) -> bool {
    let at = source.marked.saturating_sub(source.line) as usize;
    let line = source.lines.get(at).map_or("", |it| it.as_str());
    line.contains("heap") || line.contains("insort")
}

impl Book {
    /// Adds its lines to what was just told. Nothing is said of it for now if it may be within a limit.
    pub fn show(
        &mut self,
        growth: Growth,
        added_at: Vec<SourceLines>,
        limit: Option<Limit>,
    ) -> Option<Growth> {
        let mut whole = self.told.iter();
        let at = whole.position(|it| !it.is_part && it.growth.is_same(&growth));
        let Some(at) = at else {
            return Some(growth);
        };
        let limit = limit.filter(|it| !self.is_exceeded(it, &self.told[at]));
        let told = &mut self.told[at];
        if added_at.is_empty() || added_at.iter().any(keeps_an_order) {
            told.growth.advice = without_deque(&told.growth.advice);
        }
        told.growth.added_at = added_at;
        let lines = limit.as_ref().map(|it| it.lines.clone());
        told.growth.limited_at = lines.unwrap_or_default();
        told.limit = limit;
        told.limit.is_none().then(|| told.growth.clone())
    }

    /// What has gone beyond its limit, or goes on growing for so long that it has none, as far as one can see: it is told
    /// from now on.
    pub fn beyond_limit(&mut self, now: Moment) -> Vec<Growth> {
        let samples = self.groups.steps.len() as u64;
        let first = self.groups.steps.first().copied().unwrap_or_default();
        // Samples become rare where steps are fast.
        let is_long = |told: &Growth| {
            samples >= PATIENCE * told.samples
                || now.step.saturating_sub(first) >= PATIENCE * told.step.saturating_sub(first)
        };
        let mut told = std::mem::take(&mut self.told);
        let mut beyond = Vec::new();
        for told in told.iter_mut().filter(|it| !it.is_cleared && !it.is_part) {
            let Some(limit) = &told.limit else { continue };
            let is_beyond = match limit.count.and(self.length_of(told)) {
                Some(_) => self.is_exceeded(limit, told),
                None => is_long(&told.growth),
            };
            if is_beyond && self.has_just_grown(told, now.step) {
                told.limit = None;
                let bytes = self.explained(told).0.max(told.growth.bytes);
                let growth = &mut told.growth;
                if let Followed::Group { keeps, .. } = &told.followed {
                    growth.tensors = keeps.count.max(growth.tensors);
                }
                (growth.step, growth.samples, growth.bytes) = (now.step, samples, bytes);
                growth.advice = growth.beyond_limit();
                beyond.push(growth.clone());
            }
        }
        self.told = told;
        beyond
    }

    /// True for more items than the program allows.
    fn is_exceeded(&self, limit: &Limit, told: &Told) -> bool {
        let both = limit.count.zip(self.length_of(told));
        both.is_some_and(|(count, length)| length > count + count / BEYOND)
    }

    /// How many items that has which the program may limit.
    fn length_of(&self, told: &Told) -> Option<u64> {
        match &told.followed {
            Followed::Group { keeps, .. } => keeps.length,
            Followed::Arrays { address, .. } | Followed::Atoms(address) => {
                self.containers.get(address).map(|line| line.length)
            }
            _ => None,
        }
    }

    /// True if the last look, or the last sample, has seen more than any before.
    fn has_just_grown(&self, told: &Told, step: u64) -> bool {
        let rises = |last: Option<u64>| last == Some(step);
        match &told.followed {
            Followed::Group { grew_at, .. } => *grew_at == step,
            Followed::Longer { family, .. } => rises(self.lengths.get(family).map(Line::last_rise)),
            Followed::Arrays { address, .. } | Followed::Atoms(address) => {
                rises(self.containers.get(address).map(Line::last_rise))
            }
            Followed::Objects { ty, length, .. } => self.types.grows_still(ty, *length),
            Followed::Counter(_) | Followed::State { .. } | Followed::Not => true,
        }
    }
}
