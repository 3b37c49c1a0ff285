//! Lines of text that fit a terminal: wrapped or shortened, with optional colour.

use crate::model::words::{columns, name, printable, shortened};

/// No line is longer than this, in columns.
pub const WIDTH: usize = 100;

/// Style of a part of a line on a colour terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    Plain,
    /// What to read first.
    Strong,
    /// What to read last.
    Faint,
    /// The reference to remove.
    Suspect,
    /// Held memory.
    Held,
}

impl Ink {
    /// The parameter of the escape sequence "select graphic rendition" (ECMA-48, 8.3.117).
    fn code(self) -> Option<&'static str> {
        match self {
            Ink::Plain => None,
            Ink::Strong => Some("1"),
            Ink::Faint => Some("2"),
            Ink::Suspect => Some("1;31"),
            Ink::Held => Some("33"),
        }
    }
}

/// Text made of lines, each free of spaces at its end, and none longer than [`WIDTH`] but what is to stay [`Lines::whole`].
///
/// The only escape sequences in it are those of [`Ink`]: whatever the program under test named is
/// written as [`printable`] has it.
pub struct Lines {
    text: String,
    color: bool,
}

impl Lines {
    pub fn new(color: bool) -> Self {
        Self {
            text: String::new(),
            color,
        }
    }

    pub fn into_text(self) -> String {
        self.text
    }

    pub fn line(&mut self, text: impl AsRef<str>) {
        self.inked(&[(Ink::Plain, text.as_ref())]);
    }

    /// A line of pieces, each in its own ink.
    pub fn inked(&mut self, pieces: &[(Ink, &str)]) {
        let mut room = WIDTH;
        let last = pieces.len().saturating_sub(1);
        for (index, &(ink, piece)) in pieces.iter().enumerate() {
            let piece = printable(piece);
            let piece = shortened(&piece, room);
            let piece = if index == last {
                piece.trim_end()
            } else {
                &piece
            };
            room = room.saturating_sub(columns(piece));
            match ink.code().filter(|_| self.color && !piece.is_empty()) {
                Some(code) => self.text += &format!("\u{1b}[{code}m{piece}\u{1b}[0m"),
                None => self.text += piece,
            }
            if room == 0 {
                break;
            }
        }
        self.text.push('\n');
    }

    /// A line that is never shortened.
    pub fn whole(&mut self, text: &str) {
        self.text += printable(text).trim_end();
        self.text.push('\n');
    }

    /// A command behind a label, whole.
    pub fn command(&mut self, label: &str, command: &str) {
        self.inked(&[(Ink::Strong, label)]);
        self.text.truncate(self.text.trim_end().len());
        self.whole(&format!(" {command}"));
    }

    /// A sentence behind a label, broken between words; what follows the first line is indented as
    /// far. A word longer than a line is shortened in its middle.
    pub fn wrapped(&mut self, ink: Ink, label: &str, sentence: &str) {
        let indent = columns(label);
        let room = WIDTH - indent.min(WIDTH / 2);
        let mut label = label.to_owned();
        let mut line = String::new();
        for word in sentence.split(' ').filter(|word| !word.is_empty()) {
            let word = name(word, room);
            if !line.is_empty() && columns(&line) + 1 + columns(&word) > room {
                self.inked(&[(ink, &label), (Ink::Plain, &line)]);
                label = " ".repeat(indent);
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line += &word;
        }
        self.inked(&[(ink, &label), (Ink::Plain, &line)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(sentence: &str) -> String {
        let mut lines = Lines::new(false);
        lines.wrapped(Ink::Strong, "  Fix: ", sentence);
        lines.into_text()
    }

    #[test]
    fn sentences_are_broken_between_words() {
        let text = wrapped(&"seven ".repeat(30));
        assert!(text.starts_with("  Fix: seven seven"));
        assert!(
            text.lines()
                .skip(1)
                .all(|line| line.starts_with("       seven"))
        );
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH));
        assert_eq!(text.matches("seven").count(), 30);
    }

    #[test]
    fn a_word_longer_than_a_line_is_shortened_in_its_middle() {
        let text = wrapped(&format!("begin{}end", "x".repeat(1000)));
        assert_eq!(text.lines().count(), 1);
        assert!(text.contains("begin") && text.ends_with("end\n"));
    }

    #[test]
    fn only_our_own_escapes_reach_the_terminal() {
        let mut lines = Lines::new(true);
        lines.inked(&[(Ink::Suspect, "a\u{1b}[2Jb"), (Ink::Plain, " c  ")]);
        assert_eq!(lines.into_text(), "\u{1b}[1;31ma\\x1b[2Jb\u{1b}[0m c\n");
    }
}
