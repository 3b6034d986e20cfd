//! Ends a test that hangs. When an assertion fails on one thread, others may wait for it for ever. The process is
//! then aborted with the test's name and the panics so far.

use std::io::{Write, stderr};
use std::panic;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, Once, PoisonError};
use std::thread;
use std::time::Duration;

/// The panics of this process. The test harness shows them only when a test ends.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Aborts the process unless it is dropped in time.
#[derive(Debug)]
pub struct Bound(#[expect(dead_code, reason = "dropping it ends the thread")] Sender<()>);

impl Bound {
    /// Starts the time limit for the test on this thread.
    pub fn here(limit: Duration) -> Bound {
        note_panics();
        Bound::with(limit, |report| {
            // Not `eprintln`: the test harness would capture it.
            let _ = writeln!(stderr(), "{report}");
            std::process::abort()
        })
    }

    fn with(limit: Duration, end: impl FnOnce(&str) + Send + 'static) -> Bound {
        let test = thread::current().name().unwrap_or("a test").to_owned();
        let (ended, running) = channel();
        thread::spawn(move || {
            if running.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                let panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner).join("\n");
                end(&format!("{test} did not end within {limit:?}. Panics in this process:\n{panics}"));
            }
        });
        Bound(ended)
    }
}

fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(info.to_string());
            others(info);
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_hangs_is_ended_with_its_name_and_the_panics() {
        note_panics();
        assert!(thread::spawn(|| panic!("the left is not the right")).join().is_err());
        let (say, said) = channel();
        let _bound = Bound::with(Duration::ZERO, move |report| say.send(report.to_owned()).unwrap());
        let report = said.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(report.contains("a_test_that_hangs"), "{report}");
        assert!(report.contains("the left is not the right"), "{report}");
    }

    #[test]
    fn a_test_that_ends_is_left_alone() {
        let (say, said) = channel();
        drop(Bound::with(Duration::from_secs(60), move |report| say.send(report.to_owned()).unwrap()));
        // The thread has ended and dropped its end of the channel without a report.
        assert_eq!(said.recv_timeout(Duration::from_secs(10)), Err(RecvTimeoutError::Disconnected));
    }
}
