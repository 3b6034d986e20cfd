//! Durations as people write them: `500ms`, `30s`, `1h30m`; and as `flock` has them, in seconds without a unit.

use std::time::Duration;

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// How a duration is written, for messages.
pub(crate) const FORM: &str = "such as 500ms, 30s, 1h30m, or 5 for seconds";

/// Reads one or more numbers, each with its unit; or one number of seconds, which may have a fraction.
///
/// # Errors
/// The expected form.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("expected a duration {FORM}");
    if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        let seconds: f64 = text.parse().map_err(|_| wrong())?;
        let time = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
        return u64::try_from(time.as_millis()).map(|_| time).map_err(|_| wrong());
    }
    let (mut rest, mut millis) = (text, 0_u64);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        let letters = &rest[digits..];
        let end = letters.find(|c: char| c.is_ascii_digit()).unwrap_or(letters.len());
        let (_, unit) = UNITS.iter().find(|(name, _)| *name == &letters[..end]).ok_or_else(wrong)?;
        millis = number.checked_mul(*unit).and_then(|part| millis.checked_add(part)).ok_or_else(wrong)?;
        rest = &letters[end..];
    }
    Ok(Duration::from_millis(millis))
}

/// Shows at most two units, or tenths of a second below 10 s.
pub(crate) fn show(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 => format!("{}ms", time.as_millis()),
        1..=9 => format!("{}.{}s", seconds, time.subsec_millis() / 100),
        10..=59 => format!("{seconds}s"),
        60..=3599 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..=86_399 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// The time as [`parse`] reads it, exact to the millisecond.
pub(crate) fn option(time: Duration) -> String {
    if time.subsec_millis() == 0 { format!("{}s", time.as_secs()) } else { format!("{}ms", time.as_millis()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_one_or_more_units() {
        for (text, millis) in
            [("0", 0), ("0s", 0), ("500ms", 500), ("30s", 30_000), ("1h30m", 5_400_000), ("2d", 172_800_000)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", ".", "1.2.3", "s", "-1", "-1s", "1.5s", "1x", "1s2", "1e3", "inf", "1 s", "１s"] {
            assert!(parse(text).is_err(), "{text}");
        }
        for text in ["99999999999999999d", "18446744073709552", "9".repeat(400).as_str()] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_number_alone_is_one_of_seconds() {
        for (text, millis) in
            [("0", 0), ("5", 5000), ("90", 90_000), ("0.5", 500), (".25", 250), ("1.", 1000)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn durations_are_shown_short() {
        for (millis, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_250, "1.2s"),
            (59_999, "59s"),
            (61_000, "1m01s"),
            (3_660_000, "1h01m"),
            (90_000_000, "1d01h"),
        ] {
            assert_eq!(show(Duration::from_millis(millis)), text);
        }
    }
}
