//! Distributed fair locks for blocking programs: first asked, first served.
//!
//! Worker processes on many machines, each with ordinary threads, take turns on a named lock in the order in which
//! they asked. Re-entry, leases that a watchdog renews, fencing tokens and word of a lost hold come with the guard.
//!
//! ```
//! use fairlock::{Client, MemoryBackend};
//!
//! // RedisBackend::connect("redis://127.0.0.1:6379")? is the real thing.
//! let client = Client::new(MemoryBackend::new())?;
//! let lock = client.fair_lock("lock:orders")?;
//!
//! let guard = lock.lock()?; // waits for its turn; the watchdog keeps it
//! println!("token {}, certain for {:?}", guard.token(), guard.valid_for());
//! guard.unlock()?; // or drop it: the same, with errors going to `log`
//! # Ok::<(), fairlock::Error>(())
//! ```
//!
//! Start at [`Client`] and [`Lock`]. `README.md` has the promises, `ARCHITECTURE.md` the way it works.
#![cfg_attr(
    all(feature = "memory", feature = "redis"),
    doc = "\nThe [`guide`] answers the rest, in chapters."
)]

#[cfg(all(feature = "memory", feature = "redis"))]
pub mod guide;

pub use fairlock_core::backend::{Holder, LockState, Waiter};
pub use fairlock_core::{
    Attendance, Cancel, Client, ClientBuilder, ClientId, Clock, Error, FencingToken, Guard, HeldLock, Lock,
    LockGuard, LockKind, LockName, LockRequest, Lost, LostCause, ManualClock, OwnedGuard, OwnedLock,
    OwnedRequest, Owner, OwnerId, Ownership, Request, Result, Stats, ThisThread, TryLock, WaitingRequest,
    Waits, backend, crossbeam_channel,
};
#[cfg(feature = "memory")]
pub use fairlock_memory::{Faults, MemoryBackend, Operation};
#[cfg(feature = "redis")]
pub use fairlock_redis::{Discipline, Finding, RedisBackend, RedisBuilder, Verdict};

#[cfg(all(doctest, feature = "memory", feature = "redis"))]
#[doc = include_str!("../README.md")]
struct Readme;
