//! What the charts of the pages have in common: their place, and which colour is what.

use maud::{Markup, Render, html};

/// How wide a chart is.
pub const WIDTH: f64 = 900.0;
/// Space for the words beside and below a chart, and for what reaches over its ends.
pub const LEFT: f64 = 92.0;
pub const BELOW: f64 = 28.0;
pub const ABOVE: f64 = 14.0;
pub const RIGHT: f64 = 14.0;

/// Where something is across a chart that is this share of the way from its beginning to its end.
pub fn across(share: f64) -> f64 {
    LEFT + share * (WIDTH - LEFT - RIGHT)
}

/// A chart, with a title for who does not see it.
pub fn chart(class: &str, title: &str, height: f64, drawn: &Markup) -> Markup {
    html! {
        div.plot tabindex="0" role="group" aria-label=(title) {
            svg class=(class) role="img" aria-label=(title)
                viewBox=(format_args!("0 0 {WIDTH} {height}")) width=(WIDTH) height=(height) {
                (drawn)
            }
        }
    }
}

/// Blocks side by side: the colour, the width and the name of each.
pub fn blocks(all: impl Iterator<Item = (String, f64, Markup)>, height: f64) -> Markup {
    let placed = all.scan(0.0, |end, (colour, width, name)| {
        let x = *end;
        *end += width;
        Some((colour, x, width, name))
    });
    html! {
        @for (colour, x, width, name) in placed {
            svg class={ "block " (colour) } x=(format_args!("{x:.1}"))
                width=(format_args!("{width:.1}")) height=(height) {
                (name)
                rect width="100%" height=(height) {}
                (texture(&colour, height))
            }
        }
    }
}

/// What tells colours apart besides their lightness: lines or dots over a block of this class.
pub fn texture(class: &str, height: impl Render) -> Markup {
    let is_textured = TEXTURES
        .iter()
        .any(|(of, _, _)| class.split(' ').any(|word| word == *of));
    html! {
        @if is_textured { rect.texture width="100%" height=(height) {} }
    }
}

/// The textures, each as the side of a square and what is drawn in it.
const TEXTURES: [(&str, u32, &str); 5] = [
    ("gradient", 8, "M-2 10L10 -2M-2 2L2 -2M6 10L10 6"),
    ("optimizer-state", 6, "M2 3h1"),
    ("activation", 8, "M-2 -2L10 10M-2 6L2 10M6 -2L10 2"),
    ("input", 6, "M0 3H6"),
    ("garbage", 8, "M-1 9L9 -1M-1 -1L9 9"),
];

/// The textures that the styles refer to; once in a page.
pub fn textures() -> Markup {
    html! {
        svg.textures width="0" height="0" aria-hidden="true" {
            defs {
                @for (of, side, d) in TEXTURES {
                    pattern id={ "texture-" (of) } width=(side) height=(side) patternUnits="userSpaceOnUse" {
                        path d=(d) {}
                    }
                }
            }
        }
    }
}

/// So many colours there are.
const COLOURS: usize = 6;

/// The class of a colour by its number. Where the colours are used up they come again, as rings in place of dots.
pub fn coloured(number: usize) -> String {
    let kind = match number / COLOURS % 2 {
        0 => "",
        _ => " ring",
    };
    format!("p{}{kind}", number % COLOURS)
}

/// Which colour, by its number, is what; nothing where there is only one.
pub fn key<T: Render>(class: &str, entries: impl ExactSizeIterator<Item = (usize, T)>) -> Markup {
    html! {
        @if entries.len() > 1 {
            ul class={ "key " (class) } {
                @for (colour, words) in entries { li class=(coloured(colour)) { (words) } }
            }
        }
    }
}
