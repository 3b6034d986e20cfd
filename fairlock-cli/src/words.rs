//! What the command reads and writes in words: durations, names, and who holds a lock, and how.
//!
//! Durations are as people write them: `500ms`, `30s`, `1h30m`; as `flock` has them, in seconds without a unit; and those of `--durable`, the
//! durability that all clients of a server have. Names are for a terminal: control characters that other programs wrote must not reach it.

use std::ops::RangeInclusive;
use std::time::Duration;

use fairlock::admin::{LockState, Waiter};
use fairlock::owner::OwnerId;
use fairlock::settings::Durability;
use unicode_width::UnicodeWidthChar;

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

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
pub(crate) fn duration(time: Duration) -> String {
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

/// What goes on, and for how long, if that is known: `, held for 3s`.
pub(crate) fn how_long(what: &str, time: Option<Duration>) -> String {
    time.map(|time| format!("{what} for {}", duration(time))).unwrap_or_default()
}

/// The time as [`parse`] reads it, exact to the millisecond.
pub(crate) fn exact(time: Duration) -> String {
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
    parse(text).and_then(|time| {
        match (Duration::from_secs(1)..=Duration::from_secs(31 * 24 * 3600)).contains(&time) {
            true => Ok(time),
            false => Err(format!("expected 1s to 31d, found {}", exact(time))),
        }
    })
}

/// Reads a duration of this range. None for any other text.
pub(crate) fn within(text: &str, allowed: RangeInclusive<Duration>) -> Option<Duration> {
    parse(text).ok().filter(|time| allowed.contains(time))
}

/// The text, or as many of its first words as there is room for. Only a first word that is longer than that is cut.
pub(crate) fn fit_words(text: &str, columns: usize) -> String {
    if self::columns(text) <= columns {
        return text.to_owned();
    }
    let head = fitting(text.chars(), columns.saturating_sub(1));
    head.rsplit_once(' ').map_or_else(|| format!("{head}…"), |(words, _)| format!("{words} …"))
}

/// The text, or its beginning and its end: that of a name often tells more than its middle.
pub(crate) fn fit_name(text: &str, columns: usize) -> String {
    if self::columns(text) <= columns {
        return text.to_owned();
    }
    let room = columns.saturating_sub(1);
    let tail = fitting(text.chars().rev(), room - room / 2);
    fitting(text.chars(), room / 2) + "…" + &tail.chars().rev().collect::<String>()
}

/// How many columns of a terminal the text takes: some characters take two.
pub(crate) fn columns(text: &str) -> usize {
    text.chars().filter_map(UnicodeWidthChar::width).sum()
}

/// The first characters, as many as there is room for.
pub(crate) fn fitting(text: impl Iterator<Item = char>, columns: usize) -> String {
    let mut used = 0;
    text.take_while(|c| {
        used += c.width().unwrap_or(0);
        used <= columns
    })
    .collect()
}

/// The text with its control characters escaped, and the characters without a width: some change the direction of what follows.
pub(crate) fn escaped(text: &str) -> String {
    let is_plain = |c: char| c.width().is_some_and(|width| width > 0);
    text.chars().flat_map(|c| if is_plain(c) { vec![c] } else { c.escape_default().collect() }).collect()
}

/// What a writer takes: all units of a read-write lock.
const ALL: u32 = u32::MAX;

/// The kind as JSON has it; none for a name that is not in use.
pub(crate) fn kind_of(state: &LockState) -> Option<&'static str> {
    if state.holders.is_empty() && state.waiting() == 0 {
        return None;
    }
    Some(match state.capacity {
        Some(ALL) => "read-write",
        Some(_) => "semaphore",
        None => "exclusive",
    })
}

/// How many permits there are, of a semaphore.
pub(crate) fn permits(state: &LockState) -> Option<u32> {
    state.capacity.filter(|capacity| *capacity != ALL)
}

/// How many units the lock has for this waiter: semaphores of one name may have different numbers of permits.
pub(crate) fn capacity(state: &LockState, waiter: &Waiter) -> u32 {
    waiter.capacity.or(state.capacity).unwrap_or(1)
}

/// What a waiter wants, and of how many permits if its number is not the lock's.
pub(crate) fn wanted(state: &LockState, waiter: &Waiter) -> Option<String> {
    let of = capacity(state, waiter);
    match permits(state) {
        Some(permits) if permits != of => Some(format!("{} of {of} permits", waiter.units)),
        _ => units(state, waiter.units),
    }
}

/// What a holder has, or a waiter wants; none where all want the same.
pub(crate) fn units(state: &LockState, units: u32) -> Option<String> {
    match (state.capacity?, units) {
        (ALL, ALL) => Some("write".to_owned()),
        (ALL, _) => Some("read".to_owned()),
        (_, 1) => Some("1 permit".to_owned()),
        (_, n) => Some(format!("{n} permits")),
    }
}

/// Who holds the lock, and for how long: `held by a for 3s`, `read by a for 3s and 2 more`.
pub(crate) fn held_by(state: &LockState) -> String {
    let Some(first) = state.holder() else { return "not held".to_owned() };
    let how = match (state.capacity, first.units) {
        (None, _) => "held".to_owned(),
        (Some(ALL), ALL) => "written".to_owned(),
        (Some(ALL), _) => "read".to_owned(),
        (Some(permits), _) => format!("{} of {permits} permits held", state.taken()),
    };
    let by = name_of(&first.label, &first.owner);
    format!("{how} by {by}{}{}", how_long("", first.held_for), and_more(state))
}

/// The holders beside the first.
pub(crate) fn and_more(state: &LockState) -> String {
    match state.holders.len() {
        0 | 1 => String::new(),
        n => format!(" and {} more", n - 1),
    }
}

/// How many waits have begun each second since the first listed waiter, who has this rank, began to wait. In a queue that is as long as
/// then, as many have ended. Empty if nobody waits.
pub(crate) fn waits_per_second(state: &LockState, rank: u64) -> String {
    let first = state.queue.iter().find(|waiter| !waiter.is_absent());
    let Some(time) = first.and_then(|waiter| waiter.waiting) else { return String::new() };
    #[allow(clippy::cast_precision_loss, reason = "no queue is that long")]
    let begun = state.waiting().saturating_sub(rank) as f64;
    format!("{:.1}", begun / time.as_secs_f64().max(0.001))
}

/// The label of a holder or a waiter, or the owner.
pub(crate) fn name_of(label: &Option<String>, owner: &OwnerId) -> String {
    escaped(label.as_deref().unwrap_or_else(|| owner.as_str()))
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
            assert_eq!(duration(Duration::from_millis(millis)), text);
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

    #[test]
    fn long_text_is_cut_between_words_and_a_long_name_in_its_middle() {
        for (columns, text) in [
            (12, "orders: 2 é!"),
            (11, "orders: 2 …"),
            (10, "orders: …"),
            (7, "orders…"),
            (3, "or…"),
            (0, "…"),
        ] {
            assert_eq!(fit_words("orders: 2 é!", columns), text);
        }
        for (columns, text) in [(8, "abcdéfgh"), (7, "abc…fgh"), (4, "a…gh"), (1, "…")] {
            assert_eq!(fit_name("abcdéfgh", columns), text);
        }
        for (columns, text) in [(10, "夜間の仕事"), (9, "夜間…仕事"), (8, "夜…仕事"), (3, "…")]
        {
            assert_eq!(fit_name("夜間の仕事", columns), text);
        }
    }

    #[test]
    fn what_would_disturb_a_terminal_is_escaped() {
        assert_eq!(escaped("a\u{1b}[2Jé\u{202e}b"), "a\\u{1b}[2Jé\\u{202e}b");
    }
}
