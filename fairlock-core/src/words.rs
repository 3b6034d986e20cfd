//! How a time is written for people: `0 s`, `10 ms`, `1.5 s`, `10 min`, `1 h 30 min`, `1000 years`.

use std::time::Duration;

/// The units from a minute on, in seconds.
const LONG: [(&str, u64); 4] = [("year", 365 * 24 * 3600), ("day", 24 * 3600), ("h", 3600), ("min", 60)];

/// The time in words, for the error about a setting. It is exact.
///
/// ```
/// # use std::time::Duration;
/// # use fairlock_core::backend::in_words;
/// assert_eq!(in_words(Duration::from_millis(1500)), "1.5 s");
/// assert_eq!(in_words(Duration::from_secs(5400)), "1 h 30 min");
/// ```
pub fn in_words(time: Duration) -> String {
    if time < Duration::from_secs(120) {
        return short(time);
    }
    let (mut words, mut left) = (Vec::new(), time.as_secs());
    for (unit, seconds) in LONG {
        let count = left / seconds;
        left %= seconds;
        if count > 0 {
            let plural = if count > 1 && matches!(unit, "year" | "day") { "s" } else { "" };
            words.push(format!("{count} {unit}{plural}"));
        }
    }
    let rest = Duration::new(left, time.subsec_nanos());
    if !rest.is_zero() {
        words.push(short(rest));
    }
    words.join(" ")
}

/// As `Debug` has it, with a space, and no nanoseconds where there are none.
fn short(time: Duration) -> String {
    if time.is_zero() {
        return "0 s".to_owned();
    }
    let text = format!("{time:?}");
    let unit = text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit);
    format!("{number} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_units_that_people_read() {
        const S: u64 = 1_000_000_000;
        const YEAR: u64 = 31_536_000;
        for (nanos, words) in [
            (0, "0 s"),
            (1, "1 ns"),
            (10_000_000, "10 ms"),
            (1_500_000_000, "1.5 s"),
            (90 * S, "90 s"),
            (600 * S, "10 min"),
            (5400 * S, "1 h 30 min"),
            (86_400 * S, "1 day"),
            (2_764_861 * S + 1, "32 days 1 min 1.000000001 s"),
        ] {
            assert_eq!(in_words(Duration::from_nanos(nanos)), words);
        }
        assert_eq!(in_words(Duration::from_secs(YEAR)), "1 year");
        assert_eq!(in_words(Duration::from_secs(1000 * YEAR)), "1000 years");
        assert_eq!(in_words(Duration::from_secs(100 * YEAR) + Duration::from_nanos(1)), "100 years 1 ns");
    }
}
