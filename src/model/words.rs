//! How names and numbers are written, in the model and in all renderings; safe for arbitrary names.

use std::borrow::Cow;
use std::fmt::Write as _;

use jiff::SignedDuration;
use jiff::civil::DateTime;
use unicode_width::UnicodeWidthChar;

use super::report::{Buffer, Cut, Leak, Location, Step};

/// A readable size: `64.0 MiB`, `512 bytes`, `1 byte`.
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
    format!("{:.1} {}", (size * 10.0).round() / 10.0, UNITS[unit])
}

/// A noun with its article, by the sound of its first letters: `a tensor`, `an OSError`, `an LSTM`, `a UNet`.
pub fn a(noun: &str) -> String {
    let article = if sounds_of_vowel(noun) { "an" } else { "a" };
    format!("{article} {noun}")
}

/// Several names as a person writes them: `x, y and z`.
pub fn all_of(names: &[String]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => names.concat(),
    }
}

/// As [`all_of`], where one of them is meant: `x, y or z`.
pub fn one_of(names: &[String]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => names.concat(),
    }
}

/// As [`a`], at the beginning of a sentence.
pub fn capital_a(noun: &str) -> String {
    a(noun).replacen('a', "A", 1)
}

/// True if a name as people say it begins with a vowel.
fn sounds_of_vowel(noun: &str) -> bool {
    let name: Vec<char> = noun
        .chars()
        .skip_while(|letter| matches!(letter, '_' | '`'))
        .take(8)
        .collect();
    let is_capital = |at: usize| name.get(at).is_some_and(char::is_ascii_uppercase);
    let is_vowel = |at: usize| name.get(at).is_some_and(|it| "aeiouAEIOU".contains(*it));
    let is_number = |at: usize| name.get(at).is_some_and(char::is_ascii_digit);
    let Some(first) = name.first() else {
        return false;
    };
    let word: String = name.iter().collect::<String>().to_ascii_lowercase();
    let begins = |all: &[&str]| all.iter().any(|one| word.starts_with(one));
    // The first letter is said by its name: `LSTM`, `RAdam`, `F1Score`, and not `LARS` or `Linear`.
    let is_prefix = is_capital(1) && name.get(2).is_some_and(char::is_ascii_lowercase);
    let is_alone = name.len() == 1;
    let is_spelled = is_capital(0)
        && (is_alone || is_number(1) || (is_capital(1) && (!is_vowel(1) || is_prefix)));
    match first.to_ascii_lowercase() {
        '8' => true,
        'f' | 'h' | 'l' | 'm' | 'n' | 'r' | 's' | 'x' if is_spelled => true,
        'h' => begins(&["hour", "heir", "honest", "honor", "honour"]),
        'a' | 'i' => true,
        'e' => !begins(&["eu"]) || begins(&["euler"]),
        // `OneHot` is said as `won`, `Onerous` is not.
        'o' => {
            !(begins(&["once"])
                || (begins(&["one"]) && !name.get(3).is_some_and(char::is_ascii_lowercase)))
        }
        // As in `use`, or as in `up`.
        'u' => {
            let is_you = begins(&["us", "ut", "ub", "uk", "ur", "uni", "uint"])
                && !begins(&["unin", "unim", "unide"]);
            !is_you && !(is_capital(0) && (is_capital(1) || name.len() == 1))
        }
        _ => false,
    }
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

/// A number with its sign, written by `write`.
pub fn signed(number: i64, write: impl Fn(u64) -> String) -> String {
    let sign = if number < 0 { "-" } else { "+" };
    sign.to_owned() + &write(number.unsigned_abs())
}

/// Seconds since 1970 as `2026-01-31 12:00:00 UTC`; `an unknown time` for what no calendar has.
pub fn utc(seconds: f64) -> String {
    let since = SignedDuration::try_from_secs_f64(seconds).ok();
    let since = since.filter(|since| !since.is_negative());
    match since.and_then(|since| EPOCH.checked_add(since).ok()) {
        Some(time) => time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        None => "an unknown time".to_owned(),
    }
}

const EPOCH: DateTime = jiff::civil::datetime(1970, 1, 1, 0, 0, 0, 0);

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

/// How many columns of a terminal a text takes. Wide characters, such as CJK and emoji, take two.
///
/// None takes no column, so that texts with so many columns have at most so many characters.
pub fn columns(text: &str) -> usize {
    text.chars().map(columns_of).sum()
}

fn columns_of(c: char) -> usize {
    c.width().unwrap_or(1).max(1)
}

/// The text with spaces behind it up to so many columns.
pub fn padded(text: &str, width: usize) -> String {
    text.to_owned() + &" ".repeat(width.saturating_sub(columns(text)))
}

/// At most `limit` columns of the text: the beginning and, as it tells more of a dotted name,
/// a longer end, with `…` between them.
pub fn shortened(text: &str, limit: usize) -> Cow<'_, str> {
    if columns(text) <= limit {
        return Cow::Borrowed(text);
    }
    let room = limit.saturating_sub(1);
    let head = room * 2 / 5;
    let mut out: String = fitting(text.chars(), head).collect();
    out.push('…');
    let tail: Vec<char> = fitting(text.chars().rev(), room - head).collect();
    out.extend(tail.into_iter().rev());
    Cow::Owned(out)
}

/// The first characters that fit into so many columns.
fn fitting(chars: impl Iterator<Item = char>, room: usize) -> impl Iterator<Item = char> {
    chars.scan(room, |room, c| {
        *room = room.checked_sub(columns_of(c))?;
        Some(c)
    })
}

/// [`printable`] and [`shortened`] together.
pub fn name(text: &str, limit: usize) -> String {
    // A hazard takes more than one character once written out, never less: what is cut off before
    // is not needed after, and a name of a gigabyte costs no second gigabyte.
    shortened(&printable(&shortened(text, limit * 2 + 1)), limit).into_owned()
}

/// A longer name in a sentence is shortened.
const BRIEF: usize = 79;

/// A sentence, or a path, with each very long name in it shortened in its middle, so that all its names are there.
pub fn brief(text: &str) -> Cow<'_, str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut out = String::new();
    let mut rest = text;
    let mut is_changed = false;
    while let Some(first) = rest.chars().next() {
        let is_name = is_part(first);
        let end = rest.find(|c| is_part(c) != is_name).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        match is_name {
            true => {
                let run = shortened(run, BRIEF);
                is_changed |= matches!(run, Cow::Owned(_));
                out += &run;
            }
            false => out += run,
        }
        rest = after;
    }
    match is_changed {
        true => Cow::Owned(out),
        false => Cow::Borrowed(text),
    }
}

/// Code of a few lines: lines stay, tabs are spaces, all else is as in [`printable`].
pub fn printable_code(code: &str) -> String {
    let lines = code.lines().map(|line| line.replace('\t', "    "));
    let lines: Vec<String> = lines.map(|line| printable(&line).into_owned()).collect();
    lines.join("\n")
}

/// The last part of the file's path with the line, for where a whole path has no room.
pub fn short_location(location: &Location) -> String {
    let separator = separator_of(&location.file);
    let file = location.file.rsplit(separator).next().unwrap_or_default();
    Location {
        file: file.to_owned(),
        line: location.line,
    }
    .to_string()
}

/// What is between the folders of a path. A backslash is not where a slash is: it may begin a character written as
/// `\x1b`.
fn separator_of(path: &str) -> char {
    if path.contains('/') { '/' } else { '\\' }
}

/// The place in at most `limit` characters: of a long path the last folders that fit.
pub fn place_within(location: &Location, limit: usize) -> String {
    let place = location.to_string();
    let separator = separator_of(&place);
    let mut rest = place.as_str();
    while columns(rest) + if rest == place { 0 } else { 2 } > limit {
        match rest.trim_start_matches(separator).split_once(separator) {
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
    with_indices(text, |_| "x".to_owned())
}

/// The text to sort by where indices are to come in the order of numbers: `[2]` before `[10]`.
pub fn with_padded_indices(text: &str) -> String {
    with_indices(text, |index| format!("{index:0>20}"))
}

/// Texts that differ in their indices only as one, with `[each]` where they do.
#[cfg(feature = "python")]
pub fn with_each_index(texts: &[&str]) -> String {
    let indices = |text: &str| {
        let mut found = Vec::new();
        with_indices(text, |index| {
            found.push(index.to_owned());
            String::new()
        });
        found
    };
    let all: Vec<Vec<String>> = texts.iter().map(|it| indices(it)).collect();
    let mut at = 0..;
    let first = texts.first().copied().unwrap_or_default();
    with_indices(first, |index| {
        let at = at.next().unwrap_or_default();
        let is_same = |it: &Vec<String>| it.get(at).is_some_and(|it| it == index);
        match all.iter().all(is_same) {
            true => index.to_owned(),
            false => "each".to_owned(),
        }
    })
}

/// The text with what a function makes of each index in brackets.
fn with_indices(text: &str, mut replaced: impl FnMut(&str) -> String) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('[') {
        out += before;
        out.push('[');
        match after.split_once(']') {
            Some((index, behind))
                if !index.is_empty() && index.bytes().all(|b| b.is_ascii_digit()) =>
            {
                out += &replaced(index);
                out.push(']');
                rest = behind;
            }
            _ => rest = after,
        }
    }
    out + rest
}

/// As [`without_indices`], with each number in a name written `N`: `.layer1` and `.layer2` are `.layerN`.
pub fn without_numbers(text: &str) -> String {
    let text = without_indices(text);
    let mut out = String::with_capacity(text.len());
    let mut was_digit = false;
    for character in text.chars() {
        let is_digit = character.is_ascii_digit();
        match is_digit {
            true if !was_digit => out.push('N'),
            true => {}
            false => out.push(character),
        }
        was_digit = is_digit;
    }
    out
}

/// A path's references without numbers, and what follows itself once, however often: all paths down a tree or a chain are
/// the same.
pub fn shape_of_path(path: &[String]) -> Vec<String> {
    let mut shape: Vec<String> = Vec::new();
    for edge in path {
        shape.push(without_numbers(edge));
        let repeated = (1..=shape.len() / 2).take(3).find(|&length| {
            let (before, last) = shape.split_at(shape.len() - length);
            before.ends_with(last)
        });
        shape.truncate(shape.len() - repeated.unwrap_or(0));
    }
    shape
}

/// What a buffer is made of: `float32[4096, 4096]`, `raw storage`; and the size of that, if it is not the storage's:
/// `float32[2048] (8.0 KiB)`.
pub fn element_type(buffer: &Buffer) -> String {
    let shape = buffer.shape.as_ref();
    let shape = shape.map(|extents| name(&extents.to_string(), 80));
    let dtype = buffer.dtype.as_ref().map(|dtype| name(dtype, 80));
    let mut elements = match (dtype, shape) {
        (None, None) => "raw storage".to_owned(),
        (dtype, shape) => dtype.unwrap_or_default() + &shape.unwrap_or_default(),
    };
    match buffer.bytes_of_elements() {
        Some(bytes) if bytes < buffer.bytes => elements += &format!(" ({})", human_bytes(bytes)),
        Some(bytes) if bytes > buffer.bytes => elements += " (expanded)",
        _ => {}
    }
    elements
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
        .find(|cut| Some(cut.source) == step.node && cut.edge == step.edge)
}

/// How many of the listed steps stand before those that are left out.
pub fn steps_before_gap(leak: &Leak) -> usize {
    leak.cycle.len().div_ceil(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_sentence_only_very_long_names_are_shortened() {
        let long = "transformer_".repeat(30);
        let text = format!("train.py:3: `{long}.{long}` is a {long}, which leads back");
        let short = brief(&text);
        assert_eq!(short.matches('…').count(), 3);
        assert!(
            short.starts_with("train.py:3: `transformer_transformer_")
                && short.ends_with("which leads back")
        );
        assert_eq!(short.matches('`').count(), 2);
        assert!(short.len() < 300, "{short}");
        assert!(matches!(brief("a.b → `c`"), Cow::Borrowed(_)));
    }

    #[test]
    fn numbers_in_names_are_written_alike() {
        assert_eq!(without_numbers(".layer12.0"), ".layerN.N");
        assert_eq!(without_numbers("['block7'][3]"), "['blockN'][x]");
        assert_eq!(without_numbers(".head"), ".head");
    }

    #[test]
    fn articles_go_by_sound() {
        let an = "int OSError AssertionError EOFError object OrderedDict element Euler RNN LSTM MLP SGD RAdam \
            NAdam RMSprop HTTPServer HeirOf honest UnboundLocalError UninitializedParameter Upsample Unbounded \
            LRScheduler FSDPState F1Score L1Loss XMLParser Adam index _OpNamespace `Event` Onerous MSELoss \
            8-bit hour RBFKernel exception iterator Index8 Updater SGDOptimizer";
        let a = "dict list tuple Tensor Linear UserDict UNet UUID Unicode Uniform UnionFind UnicodeDecodeError \
            Utility URL OneCycleLR One OnceOnly Euclidean LARS NUTS SELU ReLU Model Layer Frame Ring Sequential \
            House HalfCheetah _Wrapped `Timer` Namespace Module function method Process UserList Usage U x \
            Subset Stack Node uint8";
        for noun in an.split_whitespace() {
            assert_eq!(super::a(noun), format!("an {noun}"));
        }
        for noun in a.split_whitespace() {
            assert_eq!(super::a(noun), format!("a {noun}"));
        }
        assert_eq!(super::capital_a("OSError"), "An OSError");
        assert_eq!(super::a(""), "a ");
    }

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
    fn wide_characters_take_two_columns() {
        assert_eq!(columns("a模型🔥→"), 8);
        assert_eq!(columns(&"e\u{301}".repeat(3)), 6);
        assert_eq!(padded("模型", 6), "模型  ");
        assert_eq!(shortened("模型模型模型", 6), "模…型");
        assert_eq!(shortened("模型", 4), "模型");
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
        let odd = at("/home/me/of\\x1b[31m/a\\x1b.py");
        assert_eq!(place_within(&odd, 14), "…/a\\x1b.py:7");
        assert_eq!(short_location(&odd), "a\\x1b.py:7");
        assert_eq!(short_location(&at("C:\\me\\train.py")), "train.py:7");
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
    fn code_keeps_its_lines() {
        assert_eq!(
            printable_code("if a < b:\n\treturn\r"),
            "if a < b:\n    return\\r"
        );
    }

    #[test]
    #[cfg(feature = "python")]
    fn what_differs_in_indices_is_written_once() {
        let past = ["past[0][1]", "past[3][1]"];
        assert_eq!(with_each_index(&past), "past[each][1]");
        assert_eq!(with_each_index(&past[..1]), past[0]);
    }
}
