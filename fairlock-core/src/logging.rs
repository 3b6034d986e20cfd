//! The one way to write to the log, and how a time is written for people.
//!
//! A logger is the program's code: its panic (on a closed pipe, say) must neither end a thread of this crate nor leave a caller's
//! request half done.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Writes a line: the name of a macro of `log`, the target, and what that macro takes after it. A function can't take the keys.
macro_rules! log_line {
    ($level:ident, $target:expr, $($line:tt)+) => {
        $crate::logging::log_safely(|| log::$level!(target: $target, $($line)+))
    };
}
pub(crate) use log_line;

/// Writes to the log, or not if the logger panics: it is the program's code, and must not end a thread of a backend.
///
/// ```
/// # use fairlock_core::backend::log_safely;
/// use log::warn;
/// log_safely(|| warn!(target: "fairlock::net", "the connection is lost"));
/// ```
pub fn log_safely(write: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(write)) {
        std::mem::forget(panic); // its drop may panic as well
    }
}

/// The shortest time between two lines of the same kind.
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// Lines of one kind, of which one a minute is written at most: what happens ten thousand times fills no log. A backend has one for
/// each kind of line that a fault can repeat.
///
/// ```
/// # use std::time::Instant;
/// # use fairlock_core::backend::LineLimit;
/// static UNREADABLE: LineLimit = LineLimit::new();
/// if let Some(count) = UNREADABLE.count(1, Instant::now()) {
///     eprintln!("{count} message(s) can't be read"); // or to the log
/// }
/// assert_eq!(UNREADABLE.count(1, Instant::now()), None); // within the same minute
/// ```
#[derive(Debug)]
pub struct LineLimit(Mutex<Written>);

#[derive(Debug)]
struct Written {
    /// When the last line was written.
    last: Option<Instant>,
    /// How many events since then no line has told of.
    untold: u64,
}

impl LineLimit {
    /// Nothing has happened yet.
    pub const fn new() -> LineLimit {
        LineLimit(Mutex::new(Written { last: None, untold: 0 }))
    }

    /// Counts so many more events. If a line is to be written now: how many events since the last line.
    pub fn count(&self, times: u64, now: Instant) -> Option<u64> {
        let mut written = self.0.lock();
        written.untold = written.untold.saturating_add(times);
        let may = written.last.is_none_or(|last| now.saturating_duration_since(last) >= MINUTE);
        if !may || written.untold == 0 {
            return None;
        }
        written.last = Some(now);
        Some(std::mem::take(&mut written.untold))
    }

    /// When a line is due for the events that no line has told of.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        let written = self.0.lock();
        written.last.filter(|_| written.untold > 0).map(|last| last + MINUTE)
    }

    /// The events that no line has told of, when no other line will come.
    pub(crate) fn rest(&self) -> Option<u64> {
        Some(std::mem::take(&mut self.0.lock().untold)).filter(|untold| *untold > 0)
    }
}

impl Default for LineLimit {
    fn default() -> Self {
        LineLimit::new()
    }
}

/// Milliseconds for the log.
pub(crate) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

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
    use std::fs;
    use std::path::Path;

    #[test]
    fn a_line_that_panics_is_left_out() {
        let mut lines = 0;
        log_safely(|| panic!("planned"));
        log_safely(|| lines += 1);
        assert_eq!(lines, 1);
    }

    #[test]
    fn what_happens_often_is_a_line_a_minute_that_counts_it() {
        let (limit, start) = (LineLimit::new(), Instant::now());
        let at = |seconds, times| limit.count(times, start + Duration::from_secs(seconds));
        assert_eq!([at(0, 2), at(1, 3), at(59, 4), at(60, 1)], [Some(2), None, None, Some(8)]);
        assert_eq!((limit.due_at(), at(200, 0)), (None, None), "nothing is untold");
        assert_eq!((at(61, 5), limit.due_at()), (None, Some(start + 2 * MINUTE)));
        assert_eq!((limit.rest(), limit.rest()), (Some(5), None));
    }

    #[test]
    fn every_line_of_this_crate_is_written_here() {
        let mut lines = 0;
        count_lines(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut lines);
        assert!(lines > 10, "only {lines} found");
    }

    fn count_lines(folder: &Path, found: &mut usize) {
        for entry in fs::read_dir(folder).expect("the sources are here") {
            let path = entry.expect("it can be read").path();
            if path.is_dir() {
                count_lines(&path, found);
                continue;
            }
            let text = fs::read_to_string(&path).expect("it is text");
            *found += text.matches("log_line!(").count();
            for level in ["error", "warn", "info", "debug", "trace", "log"] {
                assert!(!text.contains(&format!("log::{level}{}", "!(")), "{}", path.display());
            }
        }
    }

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
