//! What fairlock itself has to say: on standard error, so that the program's output stays its own.

use std::io::{Write, stderr};

use log::{LevelFilter, Log, Metadata, Record};

/// One line on standard error.
pub(crate) fn say(text: &str) {
    let _ = writeln!(stderr(), "fairlock: {text}"); // if nobody reads it, nobody wants it
}

/// The library's own log, as much of it as `-v` asks for.
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
