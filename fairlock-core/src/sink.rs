//! A resource for tests, which keeps the newest token, and refuses and counts late writes.

use parking_lot::Mutex;

use crate::ids::FencingToken;

/// Stands in a test for the resource that a program writes to: a file, a table, a service. It keeps the newest
/// [token](crate::Hold::token), refuses a write with a smaller one, and counts both: so a test shows that the program sends its token with
/// each write, and what it does when the write is refused. Not for production: a resource keeps its token together with its data.
///
/// ```
/// # use std::time::Duration;
/// # use fairlock::{Client, MemoryBackend, testing::{ManualClock, Sink}};
/// let clock = ManualClock::new();
/// let store = MemoryBackend::with_clock(clock.clone());
/// let connect = || Client::builder(store.clone()).clock(clock.clone()).build();
/// let (one, other, sink) = (connect()?, connect()?, Sink::new());
///
/// let slow = one.fair_lock("orders")?.lock()?;
/// assert!(sink.write(slow.token()));
/// clock.jump(Duration::from_secs(60)); // its process stands still: the lease ends
/// let quick = other.fair_lock("orders")?.lock()?;
/// assert!(sink.write(quick.token()));
/// assert!(!sink.write(slow.token()));
/// assert_eq!((sink.written(), sink.refused()), (2, 1));
/// # Ok::<(), fairlock::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Sink(Mutex<Writes>);

#[derive(Debug, Default)]
struct Writes {
    newest: Option<FencingToken>,
    written: u64,
    refused: u64,
}

impl Sink {
    /// No token was seen.
    pub fn new() -> Sink {
        Sink::default()
    }

    /// Whether the write is done: no write with a greater token was. An equal token passes, as one hold may write many times.
    pub fn write(&self, token: FencingToken) -> bool {
        let mut writes = self.0.lock();
        let is_late = writes.newest > Some(token);
        if is_late {
            writes.refused += 1;
        } else {
            (writes.newest, writes.written) = (Some(token), writes.written + 1);
        }
        !is_late
    }

    /// How many writes were done.
    pub fn written(&self) -> u64 {
        self.0.lock().written
    }

    /// How many writes came late, and were refused.
    pub fn refused(&self) -> u64 {
        self.0.lock().refused
    }
}
