//! A mutator that knows JSON.
//!
//! Bytes changed blindly are nearly always refused by the reader, and the renderings never see them.
//! So most changes are made to a value within the JSON.

use libfuzzer_sys::fuzzer_mutate;
use serde_json::{Number, Value};

/// Texts that mean something to whoever reads a rendering.
const ATTACKS: [&str; 16] = [
    "</script><script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "' onload='alert(1)",
    "]]>&amp;<!--",
    "\"]; a -> b [label=\"",
    "\\",
    "\\N\\l\\\"",
    "line\nbreak\r\nforged",
    "\u{1b}[31m\u{1b}]0;title\u{7}\u{9b}",
    "\u{202e}left\u{2066}\u{2028}",
    "\0\u{fffe}\u{ffff}\u{fffd}",
    "```\n# heading\n| a | b |",
    "<details><summary>",
    "javascript:alert(1)",
    "",
    "\u{1f600}\u{301}\u{301}",
];

/// Numbers at the edges of what the model's fields hold.
const EDGES: [u64; 9] = [
    0,
    1,
    2,
    3,
    99,
    1 << 31,
    u32::MAX as u64,
    i64::MAX as u64,
    u64::MAX,
];

/// Longer texts are not made longer.
const LONG: usize = 30_000;

/// The pseudo-random numbers of one change (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % limit.max(1) as u64) as usize
    }

    fn among<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// For `fuzz_mutator!`: changes a value or a few in the JSON, or else some bytes of it.
pub fn mutate(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let mut random = Random(u64::from(seed));
    if random.below(8) > 0
        && let Ok(mut json) = serde_json::from_slice::<Value>(&data[..size])
    {
        for _ in 0..=random.below(3) {
            let mut place = random.below(count(&json));
            let other = at(&json, &mut random.below(count(&json))).cloned();
            if let Some(value) = at_mut(&mut json, &mut place) {
                change(value, other.unwrap_or_default(), &mut random);
            }
        }
        let text = json.to_string();
        if text.len() <= max_size {
            data[..text.len()].copy_from_slice(text.as_bytes());
            return text.len();
        }
    }
    fuzzer_mutate(data, size, max_size)
}

fn change(value: &mut Value, other: Value, random: &mut Random) {
    if random.below(10) == 0 {
        *value = if random.below(2) == 0 {
            Value::Null
        } else {
            other
        };
        return;
    }
    match value {
        Value::Null => *value = other,
        Value::Bool(is) => *is = !*is,
        Value::Number(number) => *number = next_number(number, random),
        Value::String(text) => change_text(text, random),
        Value::Array(items) => change_items(items, other, random),
        Value::Object(fields) => {
            let names: Vec<String> = fields.keys().cloned().collect();
            if names.is_empty() {
                return;
            }
            let name = random.among(&names);
            if random.below(4) == 0 {
                fields.remove(name);
            } else if let Some(field) = fields.get_mut(name) {
                *field = other;
            }
        }
    }
}

fn next_number(number: &Number, random: &mut Random) -> Number {
    let near = number.as_u64().unwrap_or_default();
    match random.below(6) {
        0 => near.wrapping_add(1).into(),
        1 => near.wrapping_sub(1).into(),
        2 => Number::from_f64(*random.among(&[-1.0, 0.5, 1e16, 1e308, -1e308, 5e-324]))
            .unwrap_or_else(|| 0.into()),
        3 => random.below(12).into(),
        _ => (*random.among(&EDGES)).into(),
    }
}

fn change_text(text: &mut String, random: &mut Random) {
    let attack = *random.among(&ATTACKS);
    match random.below(5) {
        0 => attack.clone_into(text),
        1 => text.push_str(attack),
        2 => {
            let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            let at = ends.get(random.below(ends.len())).copied();
            text.insert_str(at.unwrap_or_default(), attack);
        }
        3 if text.len() < LONG => *text = text.repeat(1 + random.below(40)),
        _ => {
            let mut bytes = std::mem::take(text).into_bytes();
            let size = bytes.len();
            bytes.resize(size + 16, 0);
            let limit = bytes.len();
            let size = fuzzer_mutate(&mut bytes, size, limit);
            *text = String::from_utf8_lossy(&bytes[..size]).into_owned();
        }
    }
}

fn change_items(items: &mut Vec<Value>, other: Value, random: &mut Random) {
    let place = random.below(items.len());
    match random.below(5) {
        _ if items.is_empty() => items.push(other),
        0 => drop(items.remove(place)),
        1 => items.push(items[place].clone()),
        2 => {
            let with = random.below(items.len());
            items.swap(place, with);
        }
        3 => items.clear(),
        _ => items[place] = other,
    }
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

/// The value at a place, counted from `left` downwards.
fn at<'a>(value: &'a Value, left: &mut usize) -> Option<&'a Value> {
    if *left == 0 {
        return Some(value);
    }
    *left -= 1;
    match value {
        Value::Array(items) => items.iter().find_map(|item| at(item, left)),
        Value::Object(fields) => fields.values().find_map(|field| at(field, left)),
        _ => None,
    }
}

/// As [`at`].
fn at_mut<'a>(value: &'a mut Value, left: &mut usize) -> Option<&'a mut Value> {
    if *left == 0 {
        return Some(value);
    }
    *left -= 1;
    match value {
        Value::Array(items) => items.iter_mut().find_map(|item| at_mut(item, left)),
        Value::Object(fields) => fields.values_mut().find_map(|field| at_mut(field, left)),
        _ => None,
    }
}
