//! Keeps what this process logs, of all its tests together.

use std::sync::{Mutex, Once};

struct Kept(Mutex<Vec<String>>);

/// Parts of lines at which the logger panics, after it has kept the line.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

static KEPT: Kept = Kept(Mutex::new(Vec::new()));

impl log::Log for Kept {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = format!("{} {}: {}", record.level(), record.target(), record.args());
        let panics = PANICS.lock().unwrap().iter().any(|part| line.contains(part));
        self.0.lock().unwrap().push(line);
        assert!(!panics, "planned");
    }

    fn flush(&self) {}
}

/// From now on lines of this level are kept; the first call decides the level. Forgets those before.
pub fn keep_log_lines(level: log::LevelFilter) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&KEPT).unwrap();
        log::set_max_level(level);
    });
    KEPT.0.lock().unwrap().clear();
}

/// From now on the logger panics at lines with this part.
pub fn panic_at_log_lines(part: &str) {
    PANICS.lock().unwrap().push(part.to_owned());
}

/// The lines with this part, each as `LEVEL target: text`.
pub fn log_lines(part: &str) -> Vec<String> {
    KEPT.0.lock().unwrap().iter().filter(|line| line.contains(part)).cloned().collect()
}
