//! The fields of an encoded protocol buffer (<https://protobuf.dev/programming-guides/encoding/>).

/// The value of a field: a number, or the bytes of a text or of a message within.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    pub fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Number(_) => None,
        }
    }

    pub fn number(self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(number),
            Self::Bytes(_) => None,
        }
    }
}

/// The number and the value of each field of a message, in order; `None` for what is no message.
pub fn fields(mut message: &[u8]) -> Option<Vec<(u64, Value<'_>)>> {
    let mut found = Vec::new();
    while !message.is_empty() {
        let tag = number(&mut message)?;
        let value = match tag & 7 {
            0 => Value::Number(number(&mut message)?),
            1 => Value::Bytes(take(&mut message, 8)?),
            2 => {
                let length = number(&mut message)?;
                Value::Bytes(take(&mut message, usize::try_from(length).ok()?)?)
            }
            5 => Value::Bytes(take(&mut message, 4)?),
            _ => return None,
        };
        found.push((tag >> 3, value));
    }
    Some(found)
}

fn number(message: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(message, 1)?[0];
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn take<'a>(message: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = message.split_at_checked(count)?;
    *message = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_numbers_and_bytes() {
        let message = [0x08, 0x96, 0x01, 0x12, 0x02, b'h', b'i', 0x2d, 1, 2, 3, 4];
        let expected = [
            (1, Value::Number(150)),
            (2, Value::Bytes(b"hi")),
            (5, Value::Bytes(&[1, 2, 3, 4])),
        ];
        assert_eq!(fields(&message).as_deref(), Some(expected.as_slice()));
        assert_eq!(fields(&[]), Some(Vec::new()));
    }

    #[test]
    fn what_is_cut_off_is_no_message() {
        for wrong in [
            &[0x08][..],
            &[0x08, 0x80],
            &[0x12, 5, 1],
            &[0x0b],
            &[0x0d, 1],
        ] {
            assert_eq!(fields(wrong), None, "{wrong:?}");
        }
        assert_eq!(fields(&[0xff; 11]), None);
    }
}
