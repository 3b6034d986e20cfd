//! Durations as people write them: `500ms`, `30s`, `1h30m`; as `flock` has them, in seconds without a unit; and those of `--durable`, the
//! durability that all clients of a server have.

use std::ops::RangeInclusive;
use std::time::Duration;

use fairlock::settings::Durability;

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// The periods that the library takes.
const PERIODS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(31 * 24 * 60 * 60);

/// How a duration is written, for messages.
pub(crate) const FORM: &str = "such as 500ms, 30s, 1h30m, or 5 for seconds";

/// Reads one or more numbers, each with its unit; or one number of seconds. Each may have a fraction.
///
/// # Errors
/// The expected form.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    read(text).ok_or_else(|| format!("expected a duration {FORM}"))
}

fn read(text: &str) -> Option<Duration> {
    let is_of_number = |c: char| c.is_ascii_digit() || c == '.';
    let alone = !text.is_empty() && text.chars().all(is_of_number);
    let (mut rest, mut nanos) = (text, 0_u128);
    loop {
        let digits = rest.find(|c| !is_of_number(c)).unwrap_or(rest.len());
        let (number, letters) = rest.split_at(digits);
        let end = letters.find(is_of_number).unwrap_or(letters.len());
        let unit = match &letters[..end] {
            "" if alone => "s",
            unit => unit,
        };
        let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit)?;
        nanos = nanos.checked_add(times(number, u128::from(*millis) * 1_000_000)?)?;
        rest = &letters[end..];
        if rest.is_empty() {
            // Milliseconds have to fit into a number, too.
            u64::try_from(nanos / 1_000_000).ok()?;
            let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
            return Some(Duration::new(u64::try_from(seconds).ok()?, u32::try_from(rest).ok()?));
        }
    }
}

/// The number, which may have a fraction, times the nanoseconds of its unit; a part of a nanosecond is left out.
fn times(number: &str, unit: u128) -> Option<u128> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() + part.len() == 0 || !digits(part) {
        return None;
    }
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let part = format!("{part:0<9.9}").parse::<u128>().ok()?; // billionths
    whole.checked_mul(unit)?.checked_add(part * unit / 1_000_000_000)
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

/// The library's limits.
const TRUST: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);
const SKEW: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(60);

/// Reads `true`, or the times that differ from their defaults: `trust=20s,skew=1s`. None for any other text.
pub(crate) fn durability(text: &str) -> Option<Durability> {
    let mut durability = Durability::default();
    for setting in text.split(',').filter(|_| text != "true") {
        durability = match setting.split_once('=') {
            Some(("trust", time)) => durability.trust(within(time, TRUST)?),
            Some(("skew", time)) => durability.skew(within(time, SKEW)?),
            _ => return None,
        };
    }
    Some(durability)
}

/// Reads a period that the library takes.
///
/// # Errors
/// The limits, or the expected form.
pub(crate) fn period(text: &str) -> Result<Duration, String> {
    parse(text).and_then(|time| match PERIODS.contains(&time) {
        true => Ok(time),
        false => Err(format!("expected 1s to 31d, found {}", option(time))),
    })
}

/// Reads a duration of this range. None for any other text.
pub(crate) fn within(text: &str, allowed: RangeInclusive<Duration>) -> Option<Duration> {
    parse(text).ok().filter(|time| allowed.contains(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_one_or_more_units() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("500ms", 500),
            ("30s", 30_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("1.5s", 1500),
            (".5m1.25s", 31_250),
            ("1.h", 3_600_000),
            ("0.0000000001d", 0),
        ] {
            assert_eq!(parse(text).map(|time| time.as_millis()), Ok(millis), "{text}");
        }
        assert_eq!(parse("0.0000005s"), Ok(Duration::from_nanos(500)));
        for text in
            ["", ".", "1.2.3", "s", "-1", "-1s", "1.2.3s", ".s", "1x", "1s2", "1e3", "inf", "1 s", "１s"]
        {
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

    #[test]
    fn times_of_a_durability_are_read() {
        let (usual, seconds) = (Durability::default(), Duration::from_secs);
        for (text, expected) in [
            ("true", usual),
            ("trust=20s", usual.trust(seconds(20))),
            ("skew=2s", usual.skew(seconds(2))),
            ("trust=20", usual.trust(seconds(20))),
            ("skew=0,trust=1m", usual.trust(seconds(60)).skew(seconds(0))),
        ] {
            assert_eq!(durability(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "10s",
            "trust=8s,",
            "trust",
            "trust=1x",
            "trust=0.9",
            "trust=61m",
            "skew=61",
            "life",
            "true,skew=1s",
            "lease=2s",
        ] {
            assert_eq!(durability(text), None, "{text}");
        }
    }
}
