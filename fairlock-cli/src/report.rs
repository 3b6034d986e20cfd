//! Messages and logs go to standard error, apart from the program's output.

use std::io::{Write, stderr};

use log::{LevelFilter, Log, Metadata, Record};

/// One line on standard error.
pub(crate) fn say(text: &str) {
    let _ = writeln!(stderr(), "fairlock: {text}"); // fails if standard error is closed
}

/// Shows the library's log at the level of `-v`.
pub(crate) fn set_level(verbose: u8) {
    let level = match verbose {
        0 => return,
        1 => LevelFilter::Warn,
        2 => LevelFilter::Info,
        _ => LevelFilter::Debug,
    };
    if log::set_logger(&ToStderr).is_ok() {
        log::set_max_level(level);
    }
}

struct ToStderr;

impl Log for ToStderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("fairlock")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            say(&format!(
                "{} {}: {}",
                record.level().as_str().to_lowercase(),
                record.target(),
                record.args()
            ));
        }
    }

    fn flush(&self) {}
}
