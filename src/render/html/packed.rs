//! Text that the page holds compressed until it is asked for.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

/// Drawings are so repetitive that more effort gains nothing.
const EFFORT: u8 = 6;

/// A template element that holds the text as base64 of its zlib form, which browsers read by
/// `DecompressionStream`. The attributes are markup.
pub fn packed(attributes: &str, text: &str) -> String {
    let bytes = miniz_oxide::deflate::compress_to_vec_zlib(text.as_bytes(), EFFORT);
    format!(
        "<template {attributes}>{}</template>\n",
        BASE64.encode(bytes)
    )
}

#[cfg(test)]
pub fn unpacked(template: &str) -> String {
    let (_, rest) = template.split_once('>').expect("a start tag");
    let (text, _) = rest.split_once('<').expect("an end tag");
    let bytes = BASE64.decode(text).expect("base64");
    let bytes = miniz_oxide::inflate::decompress_to_vec_zlib(&bytes).expect("zlib");
    String::from_utf8(bytes).expect("UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_whole_and_is_no_markup_before() {
        let text = "</template><script>é\u{202e}".repeat(1000);
        let template = packed("id=\"one\"", &text);
        assert_eq!(template.matches('<').count(), 2);
        assert_eq!(unpacked(&template), text);
        assert!(template.len() < text.len() / 50, "{}", template.len());
    }
}
