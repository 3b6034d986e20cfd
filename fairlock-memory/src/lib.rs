//! In-process backend of fairlock: for unit tests, for examples, and as the embedded default.
//!
//! It keeps its locks in this process and follows the rules of the Redis backend's direct hand-off: the releaser makes the
//! next waiter the holder, places have deadlines, and an absent waiter is passed over but keeps its ticket. With a
//! [`ManualClock`](fairlock_core::ManualClock) time stands still until a test moves it. [`Faults`] makes calls fail, loses
//! replies and wake-ups, and cuts clients off.
//!
//! ```
//! use std::time::Duration;
//!
//! use fairlock_core::backend::Backend;
//! use fairlock_core::ManualClock;
//! use fairlock_memory::{MemoryBackend, Operation};
//!
//! let clock = ManualClock::new();
//! let backend = MemoryBackend::with_clock(clock.clone()); // a clone is the same store
//! backend.faults().fail_next(Operation::Acquire, 2); // the next two calls of `acquire` fail
//! backend.faults().delay_next(Operation::Release, 1, Duration::from_secs(3));
//! # fn takes(_: impl Backend) {}
//! # takes(backend);
//! ```
//!
//! ```text
//!  backend   impl Backend: faults, one shard, wake-ups delivered after it; and what tests inject
//!     └► store   the clock, and the locks in shards, each behind a mutex, by the rules of fairlock-rules; the subscribed clients; the planned
//!                faults
//! ```

mod backend;
mod store;

pub use backend::{Faults, MemoryBackend};
pub use store::Operation;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
