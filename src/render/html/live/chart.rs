//! Curves over steps, and bars.

use maud::{Markup, html};

use crate::model::growth::Sample;
use crate::model::words::{grouped, human_bytes};
use crate::render::html::plot;
use crate::render::html::plot::{ABOVE, BELOW, LEFT, WIDTH};

const HEIGHT: f64 = 180.0;
/// Where the axis of the steps is.
const BASE: f64 = HEIGHT - BELOW;
/// So many points are drawn of a curve, evenly chosen.
const POINTS: usize = 240;
/// A curve of few points has a dot at each.
const DOTS: usize = 60;

/// What a curve is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    Bytes,
    Tensors,
}

impl Measure {
    fn of(self, sample: &Sample) -> u64 {
        match self {
            Self::Bytes => sample.2,
            Self::Tensors => sample.1,
        }
    }

    fn words(self, value: u64) -> String {
        match self {
            Self::Bytes => human_bytes(value),
            Self::Tensors => grouped(value),
        }
    }
}

/// One curve: its colour by number, its name, and its points in the order of their steps.
pub struct Curve<'a> {
    pub colour: usize,
    pub name: &'a str,
    pub samples: &'a [Sample],
}

/// What the ends of both axes are.
struct Scale {
    steps: (u64, u64),
    values: (u64, u64),
}

impl Scale {
    /// One that fits the curves; nothing where there are no two points.
    fn of(curves: &[Curve<'_>], measure: Measure) -> Option<Self> {
        let all = || curves.iter().flat_map(|curve| curve.samples);
        let steps = || all().map(|sample| sample.0);
        let values = || all().map(|sample| measure.of(sample));
        let (first, last) = (steps().min()?, steps().max()?);
        let (least, most) = (values().min()?, values().max()?.max(1));
        // Where little grows on much, the axis begins below the least of it, so that it is seen.
        let range = most - least;
        let bottom = match range < most / 2 {
            true => least.saturating_sub((range / 4).max(1)),
            false => 0,
        };
        (first < last).then_some(Self {
            steps: (first, last),
            values: (bottom, most),
        })
    }

    fn x(&self, step: u64) -> f64 {
        let (first, last) = self.steps;
        plot::across(step.saturating_sub(first) as f64 / (last - first) as f64)
    }

    fn y(&self, value: u64) -> f64 {
        let (bottom, most) = self.values;
        BASE - value.saturating_sub(bottom) as f64 / (most - bottom) as f64 * (BASE - ABOVE)
    }
}

/// Curves over the steps of the program, and what they are called; nothing where there are no two
/// points. `marked` is a step to mark, with what it is.
pub fn curves(
    title: &str,
    curves: &[Curve<'_>],
    measure: Measure,
    marked: Option<(u64, &str)>,
) -> Option<Markup> {
    let scale = Scale::of(curves, measure)?;
    let ((first, last), (bottom, most)) = (scale.steps, scale.values);
    let half = bottom + (most - bottom) / 2;
    let middle = scale.y(half);
    let (beside, below) = (LEFT - 8.0, BASE + 18.0);
    let marked = marked.filter(|(step, _)| (first..=last).contains(step));
    let drawn = html! {
        path.grid d=(format_args!("M{LEFT} {ABOVE}H{WIDTH}M{LEFT} {middle:.1}H{WIDTH}")) {}
        path.axis d=(format_args!("M{LEFT} {ABOVE}V{BASE}H{WIDTH}")) {}
        text x=(beside) y=(ABOVE + 5.0) text-anchor="end" { (measure.words(most)) }
        text x=(beside) y=(format_args!("{:.1}", middle + 4.0)) text-anchor="end" {
            (measure.words(half))
        }
        text x=(beside) y=(BASE) text-anchor="end" { (measure.words(bottom)) }
        text x=(LEFT) y=(below) { (grouped(first)) }
        text x=((LEFT + WIDTH) / 2.0) y=(below) text-anchor="middle" { "step" }
        text x=(WIDTH) y=(below) text-anchor="end" { (grouped(last)) }
        @for curve in curves.iter().filter(|curve| !curve.samples.is_empty()) {
            (draw(curve, measure, &scale))
        }
        @if let Some((step, words)) = marked { (mark(scale.x(step), words)) }
    };
    Some(html! {
        (plot::chart("chart", title, HEIGHT, &drawn))
        (plot::key(curves.iter().map(|curve| (curve.colour, curve.name))))
    })
}

/// A line down the chart, with words on the side that has more room.
fn mark(x: f64, words: &str) -> Markup {
    let (beside, anchor) = match x > WIDTH / 2.0 {
        true => (x - 6.0, Some("end")),
        false => (x + 6.0, None),
    };
    html! {
        path.grid d=(format_args!("M{x:.1} {ABOVE}V{BASE}")) {}
        text x=(format_args!("{beside:.1}")) y=(BASE - 6.0) text-anchor=[anchor] { (words) }
    }
}

fn draw(curve: &Curve<'_>, measure: Measure, scale: &Scale) -> Markup {
    let every = curve.samples.len().div_ceil(POINTS).max(1);
    // The last is always there.
    let last = curve.samples.len().saturating_sub(1);
    let points: Vec<(f64, f64, &Sample)> = curve
        .samples
        .iter()
        .enumerate()
        .filter(|(index, _)| (last - index).is_multiple_of(every))
        .map(|(_, sample)| (scale.x(sample.0), scale.y(measure.of(sample)), sample))
        .collect();
    let path: Vec<String> = points
        .iter()
        .map(|(x, y, _)| format!("{x:.1} {y:.1}"))
        .collect();
    html! {
        g class={ "p" (curve.colour) } {
            path.curve d={ "M" (path.join("L")) } {}
            @if points.len() <= DOTS {
                @for (x, y, sample) in points {
                    circle.dot cx=(format_args!("{x:.1}")) cy=(format_args!("{y:.1}")) r="2.5" {
                        @let value = measure.words(measure.of(sample));
                        title { "step " (grouped(sample.0)) ": " (value) }
                    }
                }
            }
        }
    }
}
