//! What the charts of the pages have in common: their place, and which colour is what.

use crate::model::words::markup;

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

/// Which colour, by its number, is what, as markup; nothing where there is only one.
pub fn key<T: AsRef<str>>(entries: impl ExactSizeIterator<Item = (usize, T)>) -> String {
    if entries.len() < 2 {
        return String::new();
    }
    let entry = |(colour, words): (usize, T)| {
        format!("<li class=\"p{colour}\">{}</li>", markup(words.as_ref()))
    };
    format!(
        "<ul class=\"key\">{}</ul>\n",
        entries.map(entry).collect::<String>()
    )
}
