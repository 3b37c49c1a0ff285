//! What every page is: one file that loads nothing, and allows only its own style and script.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest as _, Sha256};

use crate::model::words::{is_hazard, printable};
use crate::render::html::packed::packed;

/// A page, but for what all have.
pub struct Page<'a> {
    pub title: &'a str,
    /// Each with the id by which the script finds it, if it needs it.
    pub styles: &'a [(Option<&'a str>, &'a str)],
    pub body: Markup,
    pub script: Option<Script<'a>>,
}

/// What runs in a page, and what it reads, as JSON.
pub struct Script<'a> {
    pub code: &'a str,
    pub data: Option<String>,
}

/// Longer JSON, in bytes, is compressed.
const LARGE: usize = 64 << 10;

impl Page<'_> {
    /// The whole page.
    ///
    /// Characters that hide or turn what follows are written out, whatever brought them here: the
    /// type of markup says only that the text has no markup in it.
    pub fn html(&self) -> String {
        let styles = self.styles.iter().map(|(id, style)| (*id, lean(style)));
        let styles: Vec<(Option<&str>, String)> = styles.collect();
        let code = self.script.as_ref().map(|script| lean(script.code));
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="Content-Security-Policy" content=(policy(&styles, code.as_deref()));
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) " · cyclescope" }
                    @for (id, style) in &styles {
                        style id=[id] { (PreEscaped(style)) }
                    }
                }
                body {
                    (self.body)
                    @if let (Some(Script { data, .. }), Some(code)) = (&self.script, &code) {
                        @match data {
                            Some(data) if data.len() > LARGE => template id="packed" { (packed(data)) },
                            Some(data) => script type="application/json" id="report" { (embedded(data)) },
                            None => {}
                        }
                        script { (PreEscaped(code)) }
                    }
                }
            }
        };
        let lines: Vec<_> = page.0.lines().map(printable).collect();
        lines.join("\n") + "\n"
    }
}

/// Allows the page's styles and script by their hashes, and nothing else. Not even a name that
/// slipped through the escaping could run.
fn policy(styles: &[(Option<&str>, String)], code: Option<&str>) -> String {
    let hash = |text: &str| format!(" 'sha256-{}'", BASE64.encode(Sha256::digest(text)));
    let styles: String = styles.iter().map(|(_, style)| hash(style)).collect();
    let script = code.map_or(" 'none'".to_owned(), hash);
    format!(
        "default-src 'none'; style-src{styles}; script-src{script}; base-uri 'none'; \
         form-action 'none'"
    )
}

/// A style or script without indentation, and without comments that have their lines to themselves: a seventh less.
/// No text in the assets goes over several lines.
fn lean(text: &str) -> String {
    let mut is_comment = false;
    let lines = text.lines().map(str::trim_start).filter(|line| {
        // Code behind a comment stays.
        let begins = line.starts_with("/*") && (line.ends_with("*/") || !line.contains("*/"));
        let is_left_out = is_comment || begins || line.starts_with("//");
        is_comment = (is_comment || begins) && !line.ends_with("*/");
        !is_left_out
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// What stands beside a frame, in the notebook.
const FRAME: &str = include_str!("../assets/frame.js");

/// A page in a frame, for a notebook: neither its style nor its script reaches the rest. The page cannot ask for the
/// notebook's theme, nor be as high as it likes: a script beside the frame sees to both, where it may run.
pub fn framed(page: String) -> String {
    let page = page.replacen("<html ", "<html class=\"framed\" ", 1);
    let frame = html! {
        iframe.cyclescope title="cyclescope" sandbox="allow-scripts allow-downloads" width="100%" height="680"
            frameborder="0" srcdoc=(page) {}
        script { (PreEscaped(FRAME)) }
    };
    frame.into_string()
}

/// JSON as a script element holds it, where a browser reads no character references. JSON's own
/// escapes take their place: nothing ends the element or begins a comment, and nothing is invisible
/// or turns the reading direction where somebody looks at the page's source.
fn embedded(json: &str) -> Markup {
    let mut out = String::with_capacity(json.len() + json.len() / 16);
    for c in json.chars() {
        if matches!(c, '<' | '>' | '&') || is_hazard(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out += &format!("\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    PreEscaped(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_comments_and_indentation() {
        let text = "// a\n/** b\n * c */\n  x = 1;\n/* d */ y = 2;\n/* e */\nz; // f\n";
        assert_eq!(lean(text), "x = 1;\n/* d */ y = 2;\nz; // f");
    }
}
