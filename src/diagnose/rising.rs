//! Whether values rise steadily.

/// The part of the intervals that must show growth.
pub const MOST: f64 = 0.8;
/// The later half of the window must grow by at least this part of what the earlier half did: a cache
/// that fills up slows down.
const STEADY: f64 = 0.5;
/// Who gives back this part of what it has grown by has not leaked it.
const GIVEN_BACK: f64 = 0.5;

/// True if values rise in most of the intervals between some steps, in the later half about as fast as before, and none gives
/// back much of what the earlier ones grew by.
pub fn is_growing(values: &[u64], steps: &[u64]) -> bool {
    let rises = values.windows(2).filter(|it| it[1] > it[0]).count();
    let (Some(&first), Some(&last)) = (values.first(), values.last()) else {
        return false;
    };
    if values.len() < 2 || (rises as f64) < MOST * (values.len() - 1) as f64 {
        return false;
    }
    let mut highest = first;
    for &value in values {
        highest = highest.max(value);
        let (grown, fallen) = ((highest - first) as f64, (highest - value) as f64);
        if fallen > 0.0 && fallen >= GIVEN_BACK * grown {
            return false;
        }
    }
    let middle = values.len() / 2;
    let rate = |from: usize, to: usize| {
        let steps = steps[to].saturating_sub(steps[from]).max(1);
        (values[to] as f64 - values[from] as f64) / steps as f64
    };
    let (earlier, later) = (rate(0, middle), rate(middle, values.len() - 1));
    last > first && later > 0.0 && later >= STEADY * earlier
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grows(values: &[u64]) -> bool {
        is_growing(values, &Vec::from_iter(0..values.len() as u64))
    }

    #[test]
    fn growth_that_slows_down_or_falls_is_none() {
        assert!(grows(&Vec::from_iter((0..11).map(|n| 10 * n))));
        assert!(!grows(&[
            100, 150, 180, 200, 212, 220, 225, 228, 230, 231, 232
        ]));
        assert!(!grows(&[5; 11]));
        assert!(!grows(&[]));
        assert!(!grows(&[7, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8]));
        assert!(grows(&[0, 2, 4, 6, 8, 10, 9, 12, 14, 16, 18]));
    }

    #[test]
    fn growth_is_measured_by_step() {
        let values = [0, 16, 32, 48, 64, 80, 82, 84, 86, 88, 90];
        let steps = [0, 160, 320, 480, 640, 800, 820, 840, 860, 880, 900];
        assert!(!grows(&values));
        assert!(is_growing(&values, &steps));
    }
}
