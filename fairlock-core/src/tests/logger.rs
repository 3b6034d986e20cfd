//! Keeps what this crate logs, for the tests of this program.

use std::sync::Once;
use std::thread::{self, ThreadId};

use log::{Level, LevelFilter, Log, Metadata, Record};
use parking_lot::Mutex;

struct Kept(Mutex<Vec<(ThreadId, Level, String)>>);

static KEPT: Kept = Kept(Mutex::new(Vec::new()));

impl Log for Kept {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("fairlock::")
    }

    fn log(&self, record: &Record<'_>) {
        let line = format!("{}: {}", record.target(), record.args());
        self.0.lock().push((thread::current().id(), record.level(), line));
    }

    fn flush(&self) {}
}

pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&KEPT).unwrap();
        log::set_max_level(LevelFilter::Debug);
    });
}

/// The lines that contain this text, with their levels. Tests run side by side, so the text names a lock or a client.
pub(super) fn lines_about(text: &str) -> Vec<(Level, String)> {
    let kept = KEPT.0.lock();
    kept.iter()
        .filter(|(.., line)| line.contains(text))
        .map(|(_, level, line)| (*level, line.clone()))
        .collect()
}

/// The lines that this thread has written with this text.
pub(crate) fn lines_of_this_thread(text: &str) -> usize {
    let this = thread::current().id();
    KEPT.0.lock().iter().filter(|(thread, _, line)| *thread == this && line.contains(text)).count()
}
