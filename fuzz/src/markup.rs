//! Whether a page is markup of ours throughout, as a browser would read it.

use std::cell::{Cell, RefCell};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{
    BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};

use crate::HARMFUL;

/// Elements that load, run, send or redirect something.
const FORBIDDEN: [&str; 12] = [
    "img",
    "iframe",
    "object",
    "embed",
    "link",
    "base",
    "video",
    "audio",
    "image",
    "use",
    "foreignobject",
    "animate",
];
/// Elements without an end tag.
const VOID: [&str; 5] = ["meta", "input", "br", "hr", "wbr"];

/// Panics if a page has an element, an attribute, a comment or an error of syntax that ours have not, as
/// it would if some text had got out of its place.
pub fn check(page: &str) {
    for template in check_one(page) {
        let bytes = BASE64.decode(&template).expect("base64 in a template");
        let bytes = miniz_oxide::inflate::decompress_to_vec_zlib(&bytes).expect("zlib in it");
        let text = String::from_utf8(bytes).expect("UTF-8 in that");
        if text.starts_with('<') {
            assert!(check_one(&text).is_empty());
        }
    }
}

/// As [`check`], of one text; returns what its templates hold.
fn check_one(page: &str) -> Vec<String> {
    let tokenizer = Tokenizer::new(
        Check::default(),
        TokenizerOpts {
            exact_errors: true,
            ..TokenizerOpts::default()
        },
    );
    let queue = BufferQueue::default();
    queue.push_back(StrTendril::from_slice(page));
    while !queue.is_empty() {
        _ = tokenizer.feed(&queue);
    }
    tokenizer.end();
    let open = tokenizer.sink.open.take();
    assert!(open.is_empty(), "not closed: {open:?}");
    assert!(tokenizer.sink.scripts.get() <= 2, "too many scripts");
    tokenizer.sink.templates.take()
}

#[derive(Default)]
struct Check {
    /// Names of the elements that are open, the innermost last.
    open: RefCell<Vec<String>>,
    scripts: Cell<usize>,
    templates: RefCell<Vec<String>>,
}

impl TokenSink for Check {
    type Handle = ();

    fn process_token(&self, token: Token, line: u64) -> TokenSinkResult<()> {
        match token {
            Token::TagToken(tag) if tag.kind == TagKind::StartTag => return self.begin(&tag),
            Token::TagToken(tag) => {
                let begun = self.open.borrow_mut().pop();
                assert_eq!(begun.as_deref(), Some(&*tag.name), "line {line}");
            }
            Token::CharacterTokens(text) => self.text(&text),
            Token::CommentToken(text) => panic!("a comment in line {line}: {text}"),
            Token::NullCharacterToken => panic!("a null character in line {line}"),
            Token::ParseError(error) => panic!("line {line}: {error}"),
            Token::DoctypeToken(_) | Token::EOFToken => {}
        }
        TokenSinkResult::Continue
    }
}

impl Check {
    fn begin(&self, tag: &Tag) -> TokenSinkResult<()> {
        let name = &*tag.name;
        assert!(!FORBIDDEN.contains(&name), "<{name}>");
        for attribute in &tag.attrs {
            let (key, value) = (&*attribute.name.local, &*attribute.value);
            assert!(
                !key.starts_with("on") && !["src", "style", "action"].contains(&key),
                "{key}={value}"
            );
            assert!(!value.contains(HARMFUL), "{key}={value:?}");
            if key.ends_with("href") {
                assert!(
                    value.starts_with('#') || value.starts_with("https://"),
                    "{value}"
                );
            }
        }
        if !tag.self_closing && !VOID.contains(&name) {
            self.open.borrow_mut().push(name.to_owned());
        }
        match name {
            "script" => {
                self.scripts.set(self.scripts.get() + 1);
                TokenSinkResult::RawData(RawKind::ScriptData)
            }
            "style" => TokenSinkResult::RawData(RawKind::Rawtext),
            "title" if self.open.borrow().len() < 4 => TokenSinkResult::RawData(RawKind::Rcdata),
            "template" => {
                self.templates.borrow_mut().push(String::new());
                TokenSinkResult::Continue
            }
            _ => TokenSinkResult::Continue,
        }
    }

    fn text(&self, text: &str) {
        match self.open.borrow().last().map(String::as_str) {
            Some("template") => {
                if let Some(template) = self.templates.borrow_mut().last_mut() {
                    template.push_str(text);
                }
            }
            _ => assert!(!text.contains(HARMFUL), "{text:?}"),
        }
    }
}
