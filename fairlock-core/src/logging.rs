//! The one way to write to the log. A logger is the program's code: its panic (on a closed pipe, say) must neither end a
//! thread of this crate nor leave a caller's request half done.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Writes a line: the name of a macro of `log`, the target, and what that macro takes after it. A function can't take the keys.
macro_rules! log_line {
    ($level:ident, $target:expr, $($line:tt)+) => {
        $crate::logging::log_safely(|| log::$level!(target: $target, $($line)+))
    };
}
pub(crate) use log_line;

/// Writes a line, or none if the logger panics.
pub(crate) fn log_safely(write: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(write)) {
        std::mem::forget(panic); // its drop may panic as well
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
