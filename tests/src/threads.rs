//! Counting the threads that fairlock has in this process.
//!
//! All tests of one test binary share one process: [`Alone`] keeps them apart, so that they can be counted after each.

use crate::bound::Bound;
use crate::eventually::look_until;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The names of the threads of this process that begin with `fairlock-`, sorted (a name is cut after 15 bytes).
#[cfg(target_os = "linux")]
pub fn our_threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc is mounted");
    // A thread may end between the listing and the look: then it is not there, which is the answer.
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    let mut ours: Vec<String> =
        names.map(|name| name.trim_end().to_owned()).filter(|name| name.starts_with("fairlock-")).collect();
    ours.sort();
    ours
}

/// Threads can be counted by name on Linux only; here it says so and finds none.
#[cfg(not(target_os = "linux"))]
pub fn our_threads() -> Vec<String> {
    eprintln!("threads are counted on Linux only");
    Vec::new()
}

/// Waits until no thread of fairlock is left in this process; panics with the names of those that are after `bound`.
#[track_caller]
pub fn wait_until_no_threads(bound: Duration) {
    if look_until(bound, || our_threads().is_empty().then_some(())).is_none() {
        panic!("threads left after {bound:?}: {}", our_threads().join(", "));
    }
}

/// More than any test takes on a machine that is busy with other things.
const LONGEST_TEST: Duration = Duration::from_secs(180);

/// Keeps the tests of one binary apart, so that the threads of the library can be counted after each of them: when it
/// is dropped none may be left, and the next test starts. A test that hangs is ended.
#[derive(Debug)]
#[expect(dead_code, reason = "held until the drop")]
pub struct Alone(MutexGuard<'static, ()>, Bound);

impl Alone {
    /// Waits for the test before this one.
    pub fn here() -> Alone {
        static TURN: Mutex<()> = Mutex::new(());
        // A test that failed has poisoned it, which is no reason for the others to fail.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        Alone(turn, Bound::here(LONGEST_TEST))
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // An ear ends within a tick and a time-out.
            wait_until_no_threads(Duration::from_secs(5));
        }
    }
}
