//! Keeps the warnings and errors that this process logs.

use std::sync::{Mutex, MutexGuard, Once, PoisonError};

struct Kept(Mutex<Vec<(String, String)>>);

static KEPT: Kept = Kept(Mutex::new(Vec::new()));

impl Kept {
    fn lines(&self) -> MutexGuard<'_, Vec<(String, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl log::Log for Kept {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            self.lines().push((record.target().to_owned(), record.args().to_string()));
        }
    }

    fn flush(&self) {}
}

/// Clears the kept lines.
pub(crate) fn keep_log_lines() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&KEPT).unwrap();
        log::set_max_level(log::LevelFilter::Warn);
    });
    KEPT.lines().clear();
}

/// The lines whose target begins like this.
pub(crate) fn log_lines(target: &str) -> Vec<String> {
    let kept = KEPT.lines();
    kept.iter().filter(|(of, _)| of.starts_with(target)).map(|(_, line)| line.clone()).collect()
}
