//! Threads of this process: counting fairlock's, and sharing the work of a test among several.
//!
//! All tests of a binary share one process. [`Alone`] runs them one at a time, so that threads can be counted after
//! each.

use crate::bound::Bound;
use crate::eventually::look_until;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The names of this process's threads that start with `fairlock-`, sorted. A name is cut after 15 bytes.
///
/// A thread takes its name when it first runs, so one that was only just started may be missing.
#[cfg(target_os = "linux")]
pub fn our_threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc is mounted");
    // A thread may end between the listing and the read. Then it does not count.
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    let mut ours: Vec<String> =
        names.map(|name| name.trim_end().to_owned()).filter(|name| name.starts_with("fairlock-")).collect();
    ours.sort();
    ours
}

/// Threads can be counted by name on Linux only; elsewhere this prints so and returns none.
#[cfg(not(target_os = "linux"))]
pub fn our_threads() -> Vec<String> {
    eprintln!("threads are counted on Linux only");
    Vec::new()
}

/// Waits until no fairlock thread is left. Panics with the remaining names after `bound`.
#[track_caller]
pub fn wait_until_no_threads(bound: Duration) {
    wait_until_none(bound, |_| true);
}

/// Waits until no client is left: where one of its own threads drops it last, that thread sends the cleanups which the program has left
/// to the client. A listener owns no client.
#[track_caller]
pub(crate) fn wait_until_no_clients() {
    wait_until_none(ENDS, |name| name != "fairlock-listen");
}

#[track_caller]
fn wait_until_none(bound: Duration, of: fn(&str) -> bool) {
    let left = || Vec::from_iter(our_threads().into_iter().filter(|name| of(name)));
    if look_until(bound, || left().is_empty().then_some(())).is_none() {
        panic!("threads left after {bound:?}: {}", left().join(", "));
    }
}

/// Does this with each of them, by eight threads. The results, in an order that depends on the number of items alone. A thread that panics
/// makes this panic.
pub fn by_threads<A: Send, T: Send>(items: Vec<A>, act: impl Fn(A) -> T + Sync) -> Vec<T> {
    const THREADS: usize = 8;
    let (act, mut parts) = (&act, Vec::from_iter((0..THREADS).map(|_| Vec::new())));
    items.into_iter().enumerate().for_each(|(number, item)| parts[number % THREADS].push(item));
    let act_on = |part: Vec<A>| part.into_iter().map(act).collect::<Vec<_>>();
    thread::scope(|scope| {
        let parts: Vec<_> = parts.into_iter().map(|part| scope.spawn(move || act_on(part))).collect();
        parts.into_iter().flat_map(|part| part.join().expect("no thread panics")).collect()
    })
}

/// Longer than a thread takes to end on a busy machine: a listener does so within a tick and a time-out.
const ENDS: Duration = Duration::from_secs(60);
/// Longer than any test takes on a busy machine.
const LONGEST_TEST: Duration = Duration::from_secs(180);

/// Runs the tests of one binary one at a time. Dropping it checks that no library thread is left; then the next test
/// starts. A test that hangs is ended.
#[derive(Debug)]
#[expect(dead_code, reason = "held until the drop")]
pub struct Alone(MutexGuard<'static, ()>, Bound);

impl Alone {
    /// Waits for the previous test.
    pub fn here() -> Alone {
        Alone::for_as_long(LONGEST_TEST)
    }

    /// The same for a test that may take so long.
    pub fn for_as_long(limit: Duration) -> Alone {
        static TURN: Mutex<()> = Mutex::new(());
        // A failed test has poisoned it, which must not fail the others.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        Alone(turn, Bound::here(limit))
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            wait_until_no_threads(ENDS);
        }
    }
}
