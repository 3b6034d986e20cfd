//! Keeps what this process logs, of all its tests together, and looks through it for passwords.

use std::sync::{Mutex, OnceLock};

use crate::secrets;

struct Kept(Mutex<Vec<String>>);

/// Parts of lines at which the logger panics, after it has kept the line.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Lines of this level are kept.
static LEVEL: OnceLock<log::LevelFilter> = OnceLock::new();

static KEPT: Kept = Kept(Mutex::new(Vec::new()));

impl log::Log for Kept {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = format!("{} {}: {}", record.level(), record.target(), record.args());
        let panics = PANICS.lock().unwrap().iter().any(|part| line.contains(part));
        // What a driver of the tests logs is not ours.
        if record.target().starts_with("fairlock") {
            secrets::look_through(&line);
        }
        if LEVEL.get().is_some_and(|level| record.level() <= *level) {
            self.0.lock().unwrap().push(line);
        }
        assert!(!panics, "planned");
    }

    fn flush(&self) {}
}

/// From now on lines of this level are kept; the first call decides the level. Forgets those before.
pub fn keep_log_lines(level: log::LevelFilter) {
    LEVEL.get_or_init(|| level);
    assert!(look_for_passwords(), "there is another logger");
    KEPT.0.lock().unwrap().clear();
}

/// From now on each line is looked through for passwords, unless the program has another logger.
pub(crate) fn look_for_passwords() -> bool {
    static OURS: OnceLock<bool> = OnceLock::new();
    *OURS.get_or_init(|| {
        log::set_max_level(log::LevelFilter::Trace);
        log::set_logger(&KEPT).is_ok()
    })
}

/// From now on the logger panics at lines with this part.
pub fn panic_at_log_lines(part: &str) {
    PANICS.lock().unwrap().push(part.to_owned());
}

/// The lines with this part, each as `LEVEL target: text`.
pub fn log_lines(part: &str) -> Vec<String> {
    KEPT.0.lock().unwrap().iter().filter(|line| line.contains(part)).cloned().collect()
}
