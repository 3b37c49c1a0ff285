//! Tensors in a few words: what one is, and how much of its memory it shows.

use crate::device::DeviceBuffer;
use crate::model::device_memory::on_device;
use crate::model::human_bytes;

/// Evidence, and more of it.
pub(super) fn with_more(evidence: String, more: &str) -> String {
    match more.is_empty() {
        true => evidence,
        false => format!("{evidence}; {more}"),
    }
}

/// The evidence of views: how much of its memory the youngest shows.
pub(super) fn part_of_whole(part: u64, whole: u64) -> String {
    let (part, whole) = (human_bytes(part), human_bytes(whole));
    format!("the youngest shows {part} of {whole}")
}

/// The bytes of what a tensor shows, by its shape; those of its memory if that is not known, or its type does not say how
/// large one item is.
pub(in crate::analysis) fn bytes_shown(buffer: &DeviceBuffer) -> u64 {
    let dtype = buffer.dtype.as_deref().unwrap_or_default();
    let digits = dtype.trim_start_matches(|it: char| !it.is_ascii_digit());
    let digits = digits.split(|it: char| !it.is_ascii_digit()).next();
    let bits = digits.and_then(|it| it.parse::<u64>().ok());
    // Of NumPy's texts, times and records the number is that of bytes: `V16`.
    let bytes = dtype.strip_prefix(['M', 'S', 'U', 'V', 'm']);
    let bytes = bytes.and_then(|it| it.parse::<u64>().ok());
    let each = match (bits, dtype) {
        _ if bytes.is_some() => bytes.unwrap_or_default(),
        (_, "bool") => 1,
        (Some(bits), _) if bits >= 8 => bits / 8,
        _ => return buffer.bytes,
    };
    let shape = buffer.shape.as_ref();
    shape.map_or(buffer.bytes, |shape| shape.iter().product::<u64>() * each)
}

/// A tensor in a few words: `float32[64, 128] on cuda:0`.
pub(in crate::analysis) fn example_of(buffer: &DeviceBuffer) -> String {
    let dtype = buffer.dtype.as_deref().unwrap_or("raw storage");
    let shape = buffer.shape.as_ref();
    let shape = shape.map_or_else(String::new, |shape| format!("{shape:?}"));
    format!("{dtype}{shape} {}", on_device(&buffer.device))
}
