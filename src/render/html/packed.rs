//! Text that the page holds compressed until it is asked for.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

/// Drawings are so repetitive that more effort gains nothing.
const EFFORT: u8 = 6;

/// The text as base64 of its zlib form, which browsers read by `DecompressionStream`.
pub fn packed(text: &str) -> String {
    BASE64.encode(miniz_oxide::deflate::compress_to_vec_zlib(
        text.as_bytes(),
        EFFORT,
    ))
}

#[cfg(test)]
pub fn unpacked(text: &str) -> String {
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
        let packed = packed(&text);
        assert!(!packed.contains(['<', '&']));
        assert_eq!(unpacked(&packed), text);
        assert!(packed.len() < text.len() / 50, "{}", packed.len());
    }
}
