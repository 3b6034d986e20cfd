//! In-process backend of fairlock: for unit tests, for examples, and as the embedded default.
//!
//! It keeps its locks in this process and decides as the Redis backend's direct hand-off does: the releaser makes
//! the next waiter the holder, places have deadlines, whoever can't be heard of is passed over and keeps his
//! ticket. With a [`ManualClock`](fairlock_core::ManualClock) time stands still until a test moves it, and
//! [`Faults`] makes calls fail, replies and wake-ups get lost, and clients disappear.
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
//!  backend    impl Backend: faults, one mutex, one look at the clock, wake-ups delivered after it
//!     └► store      locks by name, tokens, what is abandoned is swept     (from here on pure: time is given)
//!          └► lock_entry   one lock: acquire, release, renew, withdraw, ... and hand_on
//!               ├► line        places by ticket: present, or parked   └► ranks   how many are ahead
//!               ├► interest    who wants to hear that a plain lock is free
//!               └► wake_ups    who listens, and what is to be told
//! ```

mod backend;
mod faults;
mod interest;
mod line;
mod lock_entry;
mod ranks;
mod store;
mod wake_ups;

pub use backend::MemoryBackend;
pub use faults::{Faults, Operation};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
