//! The one way to write to the log. A logger is the program's code: its panic (on a closed pipe, say) must neither end a
//! thread of this crate nor leave a caller's request half done.

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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

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
}
