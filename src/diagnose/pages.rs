//! The pages that `cyclescope explain` prints: each is a doc comment in the code that it is about.

use super::growth::GrowthPattern;
use super::patterns::PATTERNS;
use super::{growth, verdicts};

/// A page, in Markdown, and the name by which reports refer to it.
pub struct Page {
    pub name: &'static str,
    pub text: String,
}

/// The patterns of reference cycles, the more particular before the more general.
pub fn of_patterns() -> Vec<Page> {
    let page = |pattern: &super::Pattern| Page {
        name: pattern.name,
        text: pattern.page(),
    };
    PATTERNS.iter().map(page).collect()
}

/// What a growth monitor tells.
pub fn of_growth() -> Vec<Page> {
    let names = growth::PATTERNS.iter().map(GrowthPattern::name);
    of_constants(names, include_str!("growth.rs"))
}

/// The verdicts of a post-mortem.
pub fn of_verdicts() -> Vec<Page> {
    let names = verdicts::VERDICTS.iter().copied();
    of_constants(names, include_str!("verdicts.rs"))
}

/// The doc comments of constants that are named like their pages.
fn of_constants(names: impl Iterator<Item = &'static str>, source: &str) -> Vec<Page> {
    let page = |name: &'static str| Page {
        name,
        text: doc_comment(source, &name.replace('-', "_").to_uppercase()),
    };
    names.map(page).collect()
}

/// The `///` lines above a public constant.
fn doc_comment(source: &str, constant: &str) -> String {
    let declaration = format!("\npub const {constant}: ");
    let before = source
        .split_once(&declaration)
        .map_or("", |(before, _)| before);
    let lines: Vec<&str> = before
        .lines()
        .rev()
        .map_while(|line| line.strip_prefix("///"))
        .collect();
    lines
        .iter()
        .rev()
        .map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_one_page_with_a_heading_and_what_to_do() {
        let mut names = Vec::new();
        for page in [of_patterns(), of_growth(), of_verdicts()]
            .into_iter()
            .flatten()
        {
            let (heading, rest) = page.text.split_once("\n\n").unwrap_or_default();
            assert!(heading.starts_with("# "), "{}: {heading}", page.name);
            assert!(rest.len() > 200, "{}: {rest}", page.name);
            assert!(!page.text.contains("///") && !page.text.contains("//!"));
            names.push(page.name);
        }
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
