//! The client of a test, which keeps what it is told.

use fairlock_core::backend::{Wake, WakeSink};
use parking_lot::Mutex;

#[derive(Default)]
pub(crate) struct RecordedWakeUps(pub(crate) Mutex<Vec<String>>);

impl WakeSink for RecordedWakeUps {
    fn wake(&self, wake: Wake<'_>) {
        self.0.lock().push(format!("{wake:?}"));
    }
}
