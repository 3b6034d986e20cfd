#![doc = include_str!("../docs/pictures/for-rustdoc.md")]
//! Distributed fair locks: first asked, first served.
//!
//! Processes on many machines, each with threads or tasks, take turns on a named lock in the order in which they asked for
//! it. A thread may re-enter its lock, a watchdog renews the lease, and the guard has a fencing token and tells when the
//! lock is lost.
//!
//! ![Five workers: on a fair lock all have 9 or 10 turns, on a plain one between 2 and 15][timeline]
//!
//! ```
//! let client = fairlock::connect("memory:")?; // redis://…, postgres://… or file://… for several processes
//! let lock = client.fair_lock("lock:orders")?;
//!
//! let guard = lock.lock()?; // waits for its turn; the watchdog renews it
//! println!("token {}, certain for {:?}", guard.token(), guard.valid_for());
//! guard.unlock()?; // a drop does the same, and logs errors
//! # Ok::<(), fairlock::Error>(())
//! ```
//!
//! | the work | take |
//! | --- | --- |
//! | one at a time, first asked, first served | [`Client::fair_lock`] |
//! | one at a time, in no order; or beside Java's `getLock` | [`Client::plain_lock`] |
//! | readers together, a writer alone | [`Client::rw_lock`] |
//! | a limited number at once | [`Client::semaphore`] |
//! | several names at once, always in one order | [`Client::lock_all`] |
//! | async tasks | any of them, by [`Client::to_async`] |
//!
//! # Features
//!
//! The crate is not on crates.io: `fairlock = { path = "../fairlock" }` names a clone of the repository.
//!
//! - `redis`, on by default: the Redis backend, `RedisBackend`.
//! - `redisson`, on by default: locks that are shared with Java, `Discipline::Redisson` and plain locks of the Redis backend.
//! - `file`, on by default: the backend for the processes of one machine, `FileBackend` (Unix).
//! - `memory`, on by default: the in-process backend, `MemoryBackend`.
//! - `postgres`: the PostgreSQL backend, `PostgresBackend`.
//! - `tls`: TLS, with addresses `rediss://…` and `postgres://…?sslmode=require`.
//! - `serde`: what `stats`, `held`, `waiting`, `inspect` and `doctor` return, and [`Lost`], can be serialized.
//! - `metrics`: counters and histograms for the crate `metrics`.
//! - `tracing`: spans of waits and holds for the crate `tracing`.
//!
//! Types of other crates stand behind features that name the version: a major version of such a crate is a new feature here, and
//! no major version of fairlock.
//!
//! - `crossbeam-channel-0_5`: the channels of losses and requests in a `select!`, by [`Receiver`](waits::Receiver).
//! - `rustls-0_23`: TLS with a `ClientConfig` of the program's own, by `.tls(…)` of the builders.
//! - `redis-1`: the address of a client of the crate `redis`, by `RedisBackend::builder_from`.
//!
//! # Where to go on
//!
#![cfg_attr(
    all(feature = "memory", feature = "redisson"),
    doc = "The [`guide`] has a chapter for each topic, [what is promised](guide::promises) among them."
)]

mod address;

pub use address::{connect, connect_async, open};
pub use fairlock_core::{
    AllGuard, AsyncClient, AsyncGuard, AsyncHold, AsyncLock, AsyncRwLock, AsyncSemaphore, CancelToken,
    Client, Error, FencingToken, Guard, Lock, Lost, LostCause, Result, RwLock, Semaphore, Term, TryLock,
};
#[cfg(all(feature = "file", unix))]
pub use fairlock_file::FileBackend;
#[cfg(feature = "memory")]
pub use fairlock_memory::MemoryBackend;
#[cfg(feature = "postgres")]
pub use fairlock_postgres::PostgresBackend;
#[cfg(feature = "redis")]
pub use fairlock_redis::RedisBackend;

/// What operators call, and what they read: who holds a lock, who waits for it, what a `doctor` found.
pub mod admin {
    pub use crate::address::doctor;
    pub use fairlock_core::backend::{Finding, Holder, LockState, Verdict, Waiter};
    pub use fairlock_core::{Admin, AsyncAdmin, LockKind, LockName};
}

/// What a store is, seen by core: for a program that calls one itself. To write a store take `fairlock-core`, which has the same names and
/// some helpers. A minor version of fairlock may change this module, and no other.
pub mod backend {
    pub use fairlock_core::backend::{
        Acquire, Acquired, Backend, BackendError, BackendErrorKind, Condition, Declined, ForceReleased, Hold,
        IntoBackend, LockId, MOST_INSPECTED, Place, Released, Renew, Renewal, RequestId, Since, Subscription,
        Text, Wait, Wake, WakeSink, Withdrawn, label_with_traceparent, one_by_one, only, pause,
    };
}

/// Who holds a lock: a thread, or an [`Owner`](owner::Owner), and their ids; and what a hold tells, and how it travels.
pub mod owner {
    pub use fairlock_core::{ClientId, HandOver, Hold, Owner, OwnerId, Ownership, ThisThread};
}

/// What a client and its store are set up with.
pub mod settings {
    pub use fairlock_core::backend::Login;
    pub use fairlock_core::{ClientBuilder, Clock};
    #[cfg(all(feature = "rustls-0_23", feature = "postgres", not(feature = "redis")))]
    pub use fairlock_postgres::rustls as rustls_0_23;
    #[cfg(feature = "postgres")]
    pub use fairlock_postgres::{PostgresBuilder, WakeUps};
    #[cfg(all(feature = "rustls-0_23", feature = "redis"))]
    pub use fairlock_redis::rustls as rustls_0_23;
    #[cfg(feature = "redis")]
    pub use fairlock_redis::{Discipline, Durability, RedisBuilder};
}

/// What a client and its locks have counted, and what the client holds and waits for.
pub mod stats {
    pub use fairlock_core::{HeldLock, NotGranted, NotGrantedByKind, Stats, Times, WaitingRequest};
}

/// What only tests need: time that they move, and faults that they plan.
pub mod testing {
    pub use fairlock_core::{Attendance, ManualClock, Sink};
    #[cfg(feature = "memory")]
    pub use fairlock_memory::{Faults, Operation};
}

/// A wait for a lock: as a value, cancelled, or over without the lock.
pub mod waits {
    pub use fairlock_core::backend::Declined;
    #[cfg(feature = "crossbeam-channel-0_5")]
    pub use fairlock_core::crossbeam_channel as crossbeam_channel_0_5;
    pub use fairlock_core::{
        Busy, LockFuture, Receiver, Request, SlowWait, TryLockFuture, UnlessCrowded, UnlessGranted,
    };
}

#[cfg(all(doctest, feature = "memory", feature = "redisson"))]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(all(feature = "memory", feature = "redisson"))]
pub mod guide {
    // The chapters of `docs/`, unchanged; their examples are tests. Markdown takes the first of two definitions of a link, so in
    // rustdoc the chapters' links lead to modules, and elsewhere to files.
    #![doc = include_str!("../docs/rustdoc-links.md")]
    #![doc = include_str!("../docs/pictures/for-rustdoc.md")]
    #![doc = include_str!("../docs/README.md")]

    #[doc = include_str!("../docs/rustdoc-links.md")]
    #[doc = include_str!("../docs/getting-started.md")]
    pub mod getting_started {}

    #[doc = include_str!("../docs/rustdoc-links.md")]
    #[cfg_attr(not(doctest), doc = include_str!("../docs/async.md"))] // a doctest of tests/, which has tokio
    pub mod r#async {}

    #[doc = include_str!("../docs/rustdoc-links.md")]
    #[doc = include_str!("../docs/pictures/for-rustdoc.md")]
    #[doc = include_str!("../docs/which-one.md")]
    pub mod which_one {}

    #[doc = include_str!("../docs/rustdoc-links.md")]
    #[doc = include_str!("../docs/pictures/for-rustdoc.md")]
    #[doc = include_str!("../docs/times.md")]
    pub mod times {}

    #[doc = include_str!("../docs/rustdoc-links.md")]
    #[doc = include_str!("../docs/pictures/for-rustdoc.md")]
    #[doc = include_str!("../docs/hand-over.md")]
    pub mod hand_over {}

    #[doc = include_str!("../docs/rustdoc-links.md")]
    #[doc = include_str!("../docs/fencing.md")]
    pub mod fencing {}

    #[doc = include_str!("../docs/rustdoc-links.md")]
    #[doc = include_str!("../docs/leader.md")]
    pub mod leader {}

    #[doc = include_str!("../docs/rustdoc-links.md")]
    #[doc = include_str!("../docs/many-commands.md")]
    pub mod many_commands {}

    #[doc = include_str!("../docs/rustdoc-links.md")]
    #[doc = include_str!("../docs/from-redisson.md")]
    pub mod from_redisson {}

    #[doc = include_str!("../docs/rustdoc-links.md")]
    #[doc = include_str!("../docs/from-elsewhere.md")]
    pub mod from_elsewhere {}

    #[doc = include_str!("../docs/rustdoc-links.md")]
    #[doc = include_str!("../docs/from-advisory-locks.md")]
    pub mod from_advisory_locks {}

    #[doc = include_str!("../docs/rustdoc-links.md")]
    #[doc = include_str!("../docs/pictures/for-rustdoc.md")]
    #[doc = include_str!("../docs/promises.md")]
    pub mod promises {}

    #[doc = include_str!("../docs/rustdoc-links.md")]
    #[doc = include_str!("../docs/pictures/for-rustdoc.md")]
    #[cfg_attr(not(doctest), doc = include_str!("../docs/postgres.md"))] // its blocks are parts of examples/transfer/ and tests/postgres/store/
    pub mod postgres {}

    #[doc = include_str!("../docs/rustdoc-links.md")]
    #[doc = include_str!("../docs/file.md")]
    pub mod file {}

    #[doc = include_str!("../docs/rustdoc-links.md")]
    #[doc = include_str!("../docs/pictures/for-rustdoc.md")]
    #[doc = include_str!("../docs/durable.md")]
    pub mod durable {}

    #[doc = include_str!("../docs/rustdoc-links.md")]
    #[doc = include_str!("../docs/operating.md")]
    pub mod operating {}

    #[doc = include_str!("../docs/rustdoc-links.md")]
    #[cfg_attr(not(doctest), doc = include_str!("../docs/reference.md"))] // its blocks are parts of the files that it names
    pub mod reference {}

    #[doc = include_str!("../docs/rustdoc-links.md")]
    #[cfg_attr(not(doctest), doc = include_str!("../docs/testing.md"))] // as async.md
    pub mod testing {}

    #[doc = include_str!("../docs/rustdoc-links.md")]
    #[cfg_attr(not(doctest), doc = include_str!("../docs/writing-a-backend.md"))] // its blocks are parts of fairlock-file/
    pub mod writing_a_backend {}

    #[doc = include_str!("../docs/rustdoc-links.md")]
    #[doc = include_str!("../docs/versions.md")]
    pub mod versions {}
}
