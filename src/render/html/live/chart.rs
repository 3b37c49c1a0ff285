//! Curves over steps, and bars.

use std::fmt::Write as _;

use crate::model::growth::Sample;
use crate::model::words::{grouped, human_bytes, markup};
use crate::render::html::plot;
use crate::render::html::plot::{ABOVE, BELOW, LEFT, WIDTH};

const HEIGHT: f64 = 180.0;
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

/// Curves over the steps of the program, and what they are called; nothing where there are no two
/// points. `marked` is a step to mark, with what it is.
pub fn curves(
    title: &str,
    curves: &[Curve<'_>],
    measure: Measure,
    marked: Option<(u64, &str)>,
) -> String {
    let all = || curves.iter().flat_map(|curve| curve.samples);
    let (Some(first), Some(last)) = (
        all().map(|sample| sample.0).min(),
        all().map(|sample| sample.0).max(),
    ) else {
        return String::new();
    };
    if first == last {
        return String::new();
    }
    let most = all()
        .map(|sample| measure.of(sample))
        .max()
        .unwrap_or(0)
        .max(1);
    // Where little grows on much, the axis begins below the least of it, so that it is seen.
    let least = all().map(|sample| measure.of(sample)).min().unwrap_or(0);
    let range = most - least;
    let bottom = match range < most / 2 {
        true => least.saturating_sub((range / 4).max(1)),
        false => 0,
    };
    let top = (most - bottom) as f64;
    let base = HEIGHT - BELOW;
    let x = |step: u64| plot::across(step.saturating_sub(first) as f64 / (last - first) as f64);
    let y = |value: u64| base - value.saturating_sub(bottom) as f64 / top * (base - ABOVE);
    let half = bottom + (most - bottom) / 2;
    let mut drawn = String::new();
    for curve in curves {
        draw(&mut drawn, curve, measure, &x, &y);
    }
    let marked = marked.filter(|(step, _)| (first..=last).contains(step));
    if let Some((step, words)) = marked {
        let x = x(step);
        // Writing to a `String` cannot fail.
        _ = write!(
            drawn,
            "<path class=\"grid\" d=\"M{x:.1} {ABOVE}V{base}\"/><text x=\"{:.1}\" y=\"{:.1}\"{}>{}</text>",
            if x > WIDTH / 2.0 { x - 6.0 } else { x + 6.0 },
            base - 6.0,
            if x > WIDTH / 2.0 {
                " text-anchor=\"end\""
            } else {
                ""
            },
            markup(words),
        );
    }
    let (title, middle) = (markup(title), y(half));
    let (beside, below) = (LEFT - 8.0, base + 18.0);
    format!(
        "<div class=\"wide\"><svg class=\"chart\" role=\"img\" aria-label=\"{title}\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\">\
         <path class=\"grid\" d=\"M{LEFT} {ABOVE}H{WIDTH}M{LEFT} {middle:.1}H{WIDTH}\"/>\
         <path class=\"axis\" d=\"M{LEFT} {ABOVE}V{base}H{WIDTH}\"/>\
         <text x=\"{beside}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
         <text x=\"{beside}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
         <text x=\"{beside}\" y=\"{base}\" text-anchor=\"end\">{}</text>\
         <text x=\"{LEFT}\" y=\"{below}\">{}</text>\
         <text x=\"{:.0}\" y=\"{below}\" text-anchor=\"middle\">step</text>\
         <text x=\"{WIDTH}\" y=\"{below}\" text-anchor=\"end\">{}</text>\n{drawn}</svg></div>\n{}",
        ABOVE + 5.0,
        measure.words(most),
        middle + 4.0,
        measure.words(half),
        measure.words(bottom),
        grouped(first),
        (LEFT + WIDTH) / 2.0,
        grouped(last),
        plot::key(curves.iter().map(|curve| (curve.colour, curve.name))),
    )
}

fn draw(
    out: &mut String,
    curve: &Curve<'_>,
    measure: Measure,
    x: &impl Fn(u64) -> f64,
    y: &impl Fn(u64) -> f64,
) {
    let every = curve.samples.len().div_ceil(POINTS).max(1);
    // The last is always there.
    let last = curve.samples.len().saturating_sub(1);
    let points: Vec<&Sample> = curve
        .samples
        .iter()
        .enumerate()
        .filter(|(index, _)| (last - index).is_multiple_of(every))
        .map(|(_, sample)| sample)
        .collect();
    let mut path = String::new();
    let mut dots = String::new();
    for (index, sample) in points.iter().enumerate() {
        let (x, y) = (x(sample.0), y(measure.of(sample)));
        // Writing to a `String` cannot fail.
        _ = write!(path, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' });
        if points.len() <= DOTS {
            _ = write!(
                dots,
                "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\"><title>step {}: {}\
                 </title></circle>",
                grouped(sample.0),
                measure.words(measure.of(sample)),
            );
        }
    }
    _ = write!(
        out,
        "<g class=\"p{}\"><path class=\"curve\" d=\"{path}\"/>{dots}</g>",
        curve.colour
    );
}
