//! What the fuzz targets share: how JSON is changed so that it often stays a report, and what every
//! page must be.

pub mod markup;
pub mod mutate;

/// What moves a terminal's cursor, or the reader's eye: no rendering as text has any of it.
pub const HARMFUL: [char; 6] = ['\u{1b}', '\u{9b}', '\u{202e}', '\u{2066}', '\r', '\0'];
