//! Counting the threads that fairlock has in this process.
//!
//! All tests of one test binary share one process: count in a binary of its own with a single test, or in a worker.

use crate::eventually::look_until;
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
