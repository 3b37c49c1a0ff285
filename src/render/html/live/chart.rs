//! Curves over steps, and bars.

use maud::{Markup, html};

use crate::model::growth::Sample;
use crate::model::words::{grouped, human_bytes, name};
use crate::render::html::parts::with_code;
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

/// One of several things that are stacked: its name, and at each step how much of it there is.
pub struct Layer {
    pub name: String,
    pub sizes: Vec<u64>,
}

/// What the ends of both axes are, and where values and steps are marked.
struct Scale {
    steps: (u64, u64),
    values: (u64, u64),
    marks: Vec<u64>,
    step_marks: Vec<u64>,
}

impl Scale {
    /// One that fits the curves; nothing where there are no two points, or all are zero.
    fn of(curves: &[Curve<'_>], measure: Measure, from_zero: bool) -> Option<Self> {
        let all = || curves.iter().flat_map(|curve| curve.samples);
        let steps = || all().map(|sample| sample.0);
        let values = || all().map(|sample| measure.of(sample));
        let (first, last) = (steps().min()?, steps().max()?);
        let (least, most) = (values().min()?, values().max().filter(|&most| most > 0)?);
        // Where little grows on much, the axis begins below the least of it, so that it is seen.
        let range = most - least;
        let bottom = match (1..most / 2).contains(&range) && !from_zero {
            true => least.saturating_sub((range / 4).max(1)),
            false => 0,
        };
        let unit = match measure {
            Measure::Bytes => 1u64 << (10 * ((most.max(1)).ilog2() / 10)),
            Measure::Tensors => 1,
        };
        let marks = marks(bottom, most, unit);
        let top = most.max(marks.last().copied().unwrap_or(0));
        (first < last).then(|| Self {
            steps: (first, last),
            values: (bottom, top),
            marks,
            step_marks: marks_within(first, last),
        })
    }

    /// What the marks of the values say. Where little grows on much and they would all say the same, all but the first
    /// say how much more they are.
    fn words(&self, measure: Measure) -> Vec<String> {
        let words: Vec<String> = self.marks.iter().map(|&mark| measure.words(mark)).collect();
        let Some(&first) = self.marks.first() else {
            return words;
        };
        if words.windows(2).all(|pair| pair[0] != pair[1]) {
            return words;
        }
        let more = self.marks[1..].iter();
        let more = more.map(|mark| format!("+ {}", measure.words(mark - first)));
        [words[0].clone()].into_iter().chain(more).collect()
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

/// Three to five round values from `bottom` to the first that is not below `most`, in units of `unit`.
fn marks(bottom: u64, most: u64, unit: u64) -> Vec<u64> {
    let width = round_width(((most - bottom) as f64 / unit as f64) / 4.0);
    let width = ((width * unit as f64) as u64).max(1);
    let first = bottom.div_ceil(width);
    (first..=first.saturating_add(5))
        .map(|mark| mark.saturating_mul(width))
        .take_while(|&mark| mark < most.saturating_add(width))
        .collect()
}

/// The first and the last step, and a few round ones between.
fn marks_within(first: u64, last: u64) -> Vec<u64> {
    let width = (round_width((last - first) as f64 / 4.0) as u64).max(1);
    // So near an end there is no room for another number.
    let near = if last < 100_000 { width / 3 } else { width / 2 }.max(1);
    let between = (first / width..=last / width).map(|mark| mark * width);
    let between = between.filter(|&mark| mark > first + near && mark + near <= last);
    [first].into_iter().chain(between).chain([last]).collect()
}

/// The least of 1, 2, 2.5 and 5 times a power of ten that is not below.
fn round_width(least: f64) -> f64 {
    let power = 10f64.powf(least.max(1e-9).log10().floor());
    let factors = [1.0, 2.0, 2.5, 5.0, 10.0];
    let factor = factors
        .into_iter()
        .find(|factor| factor * power >= least * 0.999);
    factor.unwrap_or(10.0) * power
}

/// Curves over the steps of the program, and what they are called; nothing where there are no two
/// points, or all are zero. `marked` is a step to mark, with what it is.
pub fn curves(
    title: &str,
    curves: &[Curve<'_>],
    measure: Measure,
    marked: Option<(u64, &str)>,
) -> Option<Markup> {
    let scale = Scale::of(curves, measure, false)?;
    let (first, last) = scale.steps;
    let marked = marked.filter(|(step, _)| (first..=last).contains(step));
    let drawn = html! {
        (axes(&scale, measure))
        @for curve in curves.iter().filter(|curve| !curve.samples.is_empty()) {
            (draw(curve, measure, &scale))
        }
        @if let Some((step, words)) = marked { (mark(scale.x(step), words)) }
    };
    Some(html! {
        (plot::chart("chart", title, HEIGHT, &drawn))
        (plot::key("", curves.iter().map(|curve| (curve.colour, curve.name))))
    })
}

/// Layers on each other over the steps of `whole`, which they add up to, and a curve beside them; nothing where there are
/// no two points.
pub fn stacked(
    title: &str,
    whole: &[Sample],
    layers: &[Layer],
    beside: Option<&Curve<'_>>,
) -> Option<Markup> {
    let all = Curve {
        colour: 0,
        name: "",
        samples: whole,
    };
    let mut curves = vec![all];
    curves.extend(beside.map(|curve| Curve { ..*curve }));
    let scale = Scale::of(&curves, Measure::Bytes, true)?;
    let mut base = vec![0; whole.len()];
    let mut drawn = html! { (axes(&scale, Measure::Bytes)) };
    for (number, layer) in layers.iter().enumerate() {
        let top: Vec<u64> = base.iter().zip(&layer.sizes).map(|(a, b)| a + b).collect();
        drawn = html! { (drawn) (area(number, layer, whole, (&base, &top), &scale)) };
        base = top;
    }
    let names = layers.iter().enumerate().rev();
    let drawn = html! {
        (drawn)
        @if let Some(curve) = beside { (draw(curve, Measure::Bytes, &scale)) }
    };
    Some(html! {
        (plot::chart("chart", title, HEIGHT, &drawn))
        // The uppermost first, as they stand.
        ul.key {
            @if let Some(curve) = beside { li class={ "p" (curve.colour) } { (curve.name) } }
            @for (number, layer) in names {
                li class={ "layer layer" (number) } { (with_code(&name(&layer.name, 200))) }
            }
        }
    })
}

/// A layer from its base to its top.
fn area(
    number: usize,
    layer: &Layer,
    whole: &[Sample],
    (base, top): (&[u64], &[u64]),
    scale: &Scale,
) -> Markup {
    let points: Vec<usize> = chosen(whole.len()).collect();
    let at = |&index: &usize, of: &[u64]| (scale.x(whole[index].0), scale.y(of[index]));
    let upper = points.iter().map(|it| at(it, top));
    let lower = points.iter().rev().map(|it| at(it, base));
    let outline: Vec<String> = upper
        .chain(lower)
        .map(|(x, y)| format!("{x:.1} {y:.1}"))
        .collect();
    let said = points.iter().map(|it| {
        let ((x, y), (_, below)) = (at(it, top), at(it, base));
        let (step, bytes) = (grouped(whole[*it].0), human_bytes(layer.sizes[*it]));
        format!("{x:.1} {y:.1},{below:.1} step {step}: {bytes}")
    });
    html! {
        g class={ "layer layer" (number) } data-points=(said.collect::<Vec<_>>().join("\n"))
            data-name=(name(&layer.name.replace('`', ""), 200)) {
            path.area d={ "M" (outline.join("L")) "Z" } {}
        }
    }
}

/// The grid and the axes with their words.
fn axes(scale: &Scale, measure: Measure) -> Markup {
    let (beside, below) = (LEFT - 8.0, BASE + 18.0);
    html! {
        @for (&mark, words) in scale.marks.iter().zip(scale.words(measure)) {
            @let y = format!("{:.1}", scale.y(mark));
            path.grid d=(format_args!("M{LEFT} {y}H{WIDTH}")) {}
            text x=(beside) y=(format_args!("{:.1}", scale.y(mark) + 4.0)) text-anchor="end" {
                (words)
            }
        }
        path.axis d=(format_args!("M{LEFT} {ABOVE}V{BASE}H{WIDTH}")) {}
        @if scale.values.0 > 0 {
            // The axis does not begin at zero.
            path.break d=(format_args!("M{} {}l10 -5m-10 11l10 -5", LEFT - 5.0, BASE - 4.0)) {}
            text.break x=(LEFT + 8.0) y=(BASE - 6.0) { "does not begin at 0" }
        }
        @for &step in &scale.step_marks {
            @let x = format!("{:.1}", scale.x(step));
            path.axis d=(format_args!("M{x} {BASE}v4")) {}
            text x=(x) y=(below) text-anchor="middle" { (grouped(step)) }
        }
        text x=(WIDTH) y=(ABOVE - 3.0) text-anchor="end" { "by step" }
    }
}

/// Which of so many points are drawn; the last is always there.
fn chosen(count: usize) -> impl Iterator<Item = usize> {
    let every = count.div_ceil(POINTS).max(1);
    (0..count).filter(move |index| (count - 1 - index).is_multiple_of(every))
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
    let points: Vec<(f64, f64, &Sample)> = chosen(curve.samples.len())
        .map(|index| &curve.samples[index])
        .map(|sample| (scale.x(sample.0), scale.y(measure.of(sample)), sample))
        .collect();
    let path: Vec<String> = points
        .iter()
        .map(|(x, y, _)| format!("{x:.1} {y:.1}"))
        .collect();
    // For the script, which reads them out and enlarges a part.
    let said: Vec<String> = points
        .iter()
        .map(|(x, y, sample)| {
            let value = measure.words(measure.of(sample));
            format!("{x:.1} {y:.1} step {}: {value}", grouped(sample.0))
        })
        .collect();
    html! {
        g class={ "p" (curve.colour) } data-points=(said.join("\n")) data-name=(curve.name) {
            path.curve d={ "M" (path.join("L")) } {}
            @if points.len() <= DOTS {
                @for (x, y, _) in points {
                    circle.dot cx=(format_args!("{x:.1}")) cy=(format_args!("{y:.1}")) r="2.5" {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_marks_say_the_same() {
        let words = |bottom: u64, top: u64| {
            let samples = [(1, 1, bottom), (2, 1, top)];
            let curve = Curve {
                colour: 0,
                name: "",
                samples: &samples,
            };
            let scale = Scale::of(&[curve], Measure::Bytes, false).expect("two points");
            scale.words(Measure::Bytes)
        };
        for (bottom, top) in [
            (36 << 20, (36 << 20) + 80),
            (0, 400),
            (1 << 30, (1 << 30) + 5000),
        ] {
            let mut said = words(bottom, top);
            let count = said.len();
            said.dedup();
            assert_eq!(said.len(), count, "{said:?}");
        }
        assert!(words(36 << 20, (36 << 20) + 80)[1].starts_with("+ "));
    }

    #[test]
    fn what_stays_the_same_is_drawn_from_zero_and_nothing_is_not_drawn() {
        let scale = |value: u64| {
            let samples = [(1, 1, value), (2, 1, value)];
            let curve = Curve {
                colour: 0,
                name: "",
                samples: &samples,
            };
            Scale::of(&[curve], Measure::Bytes, false)
        };
        let scale_of_some = scale(16_640).expect("two points");
        assert_eq!(scale_of_some.values.0, 0);
        assert!(scale_of_some.words(Measure::Bytes).len() > 2);
        assert!(scale(0).is_none());
    }

    #[test]
    fn an_axis_has_three_to_six_round_marks_that_reach_over_the_curve() {
        for most in [1u64, 3, 7, 99, 390 << 20, (1 << 40) + 5, u64::MAX / 4] {
            let unit = 1u64 << (10 * (most.ilog2() / 10));
            let marks = marks(0, most, unit);
            assert!((2..=6).contains(&marks.len()), "{most}: {marks:?}");
            assert!(
                marks[0] == 0 && marks[marks.len() - 1] >= most,
                "{most}: {marks:?}"
            );
        }
        assert_eq!(
            marks(0, 390 << 20, 1 << 20),
            [0, 100, 200, 300, 400].map(|it| it << 20)
        );
        assert_eq!(marks_within(10, 390), [10, 100, 200, 300, 390]);
        assert_eq!(marks_within(0, 1), [0, 1]);
    }
}
