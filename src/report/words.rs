//! Words and numbers as every rendering writes them, safe to show whatever the program named.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::model::{Buffer, Cut, Leak, Location, Step};

/// A size for people: `64.0 MiB`, `512 bytes`, `1 byte`.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return counted(bytes, "byte", "bytes");
    }
    let mut size = bytes as f64 / 1024.0;
    let mut unit = 0;
    // What would be written as `1024.0` belongs to the next unit.
    while size >= 1023.95 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{size:.1} {}", UNITS[unit])
}

/// A number with its noun: `1 object`, `1,000,000 objects`.
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!(
        "{} {}",
        grouped(number),
        if number == 1 { one } else { many }
    )
}

/// A number with a comma between thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Seconds since 1970 as `2026-01-31 12:00:00 UTC`; `an unknown time` for what no calendar has.
pub fn utc(seconds: f64) -> String {
    if !(0.0..253_402_300_800.0).contains(&seconds) {
        return "an unknown time".to_owned();
    }
    let seconds = seconds as u64;
    let (year, month, day) = civil_date(seconds / 86_400);
    let clock = seconds % 86_400;
    let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// The Gregorian date that lies `days` after 1970-01-01.
fn civil_date(mut days: u64) -> (u64, usize, u64) {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

/// The text on one line, with everything that could move a terminal's cursor or reorder the line
/// written as Python's `repr` writes it: `\n`, `\x1b`, `\u202e`.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hazard) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        push_printable(&mut out, c);
    }
    Cow::Owned(out)
}

fn push_printable(out: &mut String, c: char) {
    match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if !is_hazard(c) => out.push(c),
        // Writing to a `String` cannot fail.
        c if (c as u32) < 0x100 => _ = write!(out, "\\x{:02x}", c as u32),
        c if (c as u32) < 0x10000 => _ = write!(out, "\\u{:04x}", c as u32),
        c => _ = write!(out, "\\U{:08x}", c as u32),
    }
}

/// Control characters, line separators, and the invisible characters that change the direction
/// or the look of what follows. XML forbids U+FFFE and U+FFFF.
pub fn is_hazard(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{061c}'
                | '\u{200b}'
                | '\u{200e}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{fffe}'..='\u{ffff}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// At most `limit` characters of the text: the beginning and, as it tells more of a dotted name,
/// a longer end, with `…` between them.
pub fn shortened(text: &str, limit: usize) -> Cow<'_, str> {
    let length = text.chars().count();
    if length <= limit {
        return Cow::Borrowed(text);
    }
    let room = limit.saturating_sub(1);
    let head = room * 2 / 5;
    let tail = length - (room - head);
    let mut out: String = text.chars().take(head).collect();
    out.push('…');
    out.extend(text.chars().skip(tail));
    Cow::Owned(out)
}

/// [`printable`] and [`shortened`] together.
pub fn name(text: &str, limit: usize) -> String {
    // A hazard takes more than one character once written out, never less: what is cut off before
    // is not needed after, and a name of a gigabyte costs no second gigabyte.
    shortened(&printable(&shortened(text, limit * 2 + 1)), limit).into_owned()
}

/// The text as HTML and XML content or as a quoted attribute.
pub fn markup(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => push_printable(&mut out, c),
        }
    }
    out
}

/// Code of a few lines as markup: lines and tabs stay, all else is as in [`markup`].
pub fn markup_code(code: &str) -> String {
    let lines: Vec<String> = code
        .lines()
        .map(|line| markup(&line.replace('\t', "    ")))
        .collect();
    lines.join("\n")
}

/// The last part of the file's path with the line, for where a whole path has no room.
pub fn short_location(location: &Location) -> String {
    let file = location.file.rsplit(['/', '\\']).next().unwrap_or_default();
    Location {
        file: file.to_owned(),
        line: location.line,
    }
    .to_string()
}

/// The place in at most `limit` characters: of a long path the last folders that fit.
pub fn place_within(location: &Location, limit: usize) -> String {
    let place = location.to_string();
    let mut rest = place.as_str();
    while rest.chars().count() + if rest == place { 0 } else { 2 } > limit {
        match rest.trim_start_matches(['/', '\\']).split_once(['/', '\\']) {
            Some((_, shorter)) => rest = shorter,
            None => return name(rest, limit),
        }
    }
    match rest == place {
        true => name(rest, limit),
        false => name(&format!("…/{rest}"), limit),
    }
}

/// The text without the numbers of items in it: `(list, 12 items)` becomes `(list)`.
pub fn without_counts(text: &str) -> String {
    let mut parts = text.split(", ");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let counted = part.split_once(" item").and_then(|(count, rest)| {
            let is_count = count.bytes().all(|b| b.is_ascii_digit() || b == b',');
            let rest = rest.strip_prefix('s').unwrap_or(rest);
            (is_count && (rest.is_empty() || rest.starts_with(')'))).then_some(rest)
        });
        match counted {
            Some(rest) => out += rest,
            None => {
                out += ", ";
                out += part;
            }
        }
    }
    out
}

/// The text with each index, a number in brackets, written `[x]`: what is stored at another place
/// of a list, or under another number, is the same leak.
pub fn without_indices(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('[') {
        out += before;
        match after.split_once(']') {
            Some((index, behind))
                if !index.is_empty() && index.bytes().all(|b| b.is_ascii_digit()) =>
            {
                out += "[x]";
                rest = behind;
            }
            _ => {
                out.push('[');
                rest = after;
            }
        }
    }
    out + rest
}

/// What a buffer is made of: `float32[4096, 4096]`, `raw storage`.
pub fn element_type(buffer: &Buffer) -> String {
    let shape = buffer.shape.as_ref().map(|extents| {
        let extents: Vec<String> = extents.iter().map(u64::to_string).collect();
        name(&format!("[{}]", extents.join(", ")), 80)
    });
    let dtype = buffer.dtype.as_ref().map(|dtype| name(dtype, 80));
    match (dtype, shape) {
        (None, None) => "raw storage".to_owned(),
        (dtype, shape) => dtype.unwrap_or_default() + &shape.unwrap_or_default(),
    }
}

/// How many buffers the leak held, listed or not.
pub fn buffer_count(leak: &Leak) -> u64 {
    leak.buffers_omitted
        .saturating_add(leak.buffers.len() as u64)
}

/// The cut of the step's reference to the next, if that is one to remove.
pub fn cut_of<'a>(leak: &'a Leak, step: &Step) -> Option<&'a Cut> {
    leak.cuts
        .iter()
        .find(|cut| cut.from == step.node && cut.edge == step.edge)
}

/// How many of the listed steps stand before those that are left out.
pub fn steps_before_gap(leak: &Leak) -> usize {
    leak.cycle.len().div_ceil(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_in_the_unit_that_fits() {
        assert_eq!(human_bytes(0), "0 bytes");
        assert_eq!(human_bytes(1), "1 byte");
        assert_eq!(human_bytes(512), "512 bytes");
        assert_eq!(human_bytes(1024), "1.0 KiB");
        assert_eq!(human_bytes(64 << 20), "64.0 MiB");
        assert_eq!(human_bytes((1 << 20) - 1), "1.0 MiB");
        assert_eq!(human_bytes(u64::MAX), "16.0 EiB");
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_000), "1,000");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }

    #[test]
    fn times_are_utc_and_never_panic() {
        assert_eq!(utc(0.0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_400.0), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_767_225_599.9), "2025-12-31 23:59:59 UTC");
        assert_eq!(utc(253_402_300_799.0), "9999-12-31 23:59:59 UTC");
        for odd in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
            assert_eq!(utc(odd), "an unknown time");
        }
    }

    #[test]
    fn nothing_that_moves_a_cursor_survives() {
        assert_eq!(
            printable("a\nb\r\t\u{1b}[31m\u{7f}\u{9b}"),
            "a\\nb\\r\\t\\x1b[31m\\x7f\\x9b"
        );
        assert_eq!(
            printable("x\u{202e}y\u{2066}z\u{2028}"),
            "x\\u202ey\\u2066z\\u2028"
        );
        assert_eq!(printable("\u{e0041}"), "\\U000e0041");
        assert!(matches!(printable("Modèle._größe 模型"), Cow::Borrowed(_)));
    }

    #[test]
    fn names_are_shortened_in_the_middle() {
        assert_eq!(shortened("abcdefghij", 10), "abcdefghij");
        assert_eq!(shortened("abcdefghijk", 10), "abc…fghijk");
        assert_eq!(shortened("ab", 0), "…");
        assert_eq!(name(&"\n".repeat(10_000), 21).chars().count(), 21);
        assert!(name(&format!("{}tail", "é".repeat(10_000)), 20).ends_with("tail"));
    }

    #[test]
    fn of_a_long_path_the_end_is_kept() {
        let at = |file: &str| Location {
            file: file.into(),
            line: 7,
        };
        assert_eq!(place_within(&at("/a/train.py"), 20), "/a/train.py:7");
        assert_eq!(
            place_within(&at("/home/me/project/train.py"), 22),
            "…/project/train.py:7"
        );
        assert_eq!(place_within(&at("/home/me/train.py"), 12), "…/train.py:7");
        assert_eq!(
            place_within(&at("/home/me/trainer.py"), 8).chars().count(),
            8
        );
    }

    #[test]
    fn indices_are_written_alike() {
        assert_eq!(without_indices("a[12][x]['3'][[4]"), "a[x][x]['3'][[x]");
        assert_eq!(without_indices("a[ []"), "a[ []");
    }

    #[test]
    fn numbers_of_items_are_left_out() {
        let text =
            "local `a` in `f`, x.py:3 (list, 1,200 items) → [0] (dict, 1 item) → ['b, 2 items']";
        let without = "local `a` in `f`, x.py:3 (list) → [0] (dict) → ['b, 2 items']";
        assert_eq!(without_counts(text), without);
    }

    #[test]
    fn markup_has_no_markup_left() {
        assert_eq!(
            markup("</script><img src='x' onerror=\"a&b\">\u{0}"),
            "&lt;/script&gt;&lt;img src=&#39;x&#39; onerror=&quot;a&amp;b&quot;&gt;\\x00"
        );
        assert_eq!(
            markup_code("if a < b:\n\treturn"),
            "if a &lt; b:\n    return"
        );
    }
}
