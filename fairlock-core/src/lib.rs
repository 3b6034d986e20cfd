//! The lock API of fairlock, the [`Backend`](backend::Backend) trait, the watchdog and the waiting. It knows no
//! store; programs use the facade crate `fairlock`.
//!
//! ```text
//!  user ──► handle/lock ──► flow/acquire ──► backend (trait) ──► fairlock-redis, -postgres, -memory
//!   ▲            │              │ not yet: sleep on the claim's signal               │ who is next?
//!   │            ▼              ▼                                                    ▼
//!  handle/guard ◄── claim (Waiting → Held → Leaving → Over) ◄── wake (sink) ◄────── publish
//!
//!  meanwhile:  watchdog ──► backend.renew (holds, places) ──► claim; lost ──► guard, channel, callback
//! ```
//!
//! A claim is one request's whole life in this client; `claim/mod.rs` has the table of its phases.
//! `ARCHITECTURE.md` has walks through the files, the threads, the invariants and the reasons.

pub mod backend;
mod backlog;
mod claim;
mod config;
mod error;
mod flow;
mod handle;
mod ids;
mod ledger;
mod logging;
mod losses;
mod outage;
mod shared;
mod stats;
mod tasks;
#[cfg(test)]
mod tests;
mod time;
mod timers;
mod wake;
mod watchdog;

pub use claim::{HeldLock, WaitingRequest};
#[cfg(feature = "crossbeam-channel-0_5")]
pub use crossbeam_channel;
pub use error::{Busy, Error, Lost, LostCause, Result, SlowWait};
#[doc(hidden)]
pub use handle::connecting;
pub use handle::{
    Admin, AllGuard, AsyncAdmin, AsyncClient, AsyncGuard, AsyncHold, AsyncLock, AsyncRwLock, AsyncSemaphore,
    Client, ClientBuilder, Guard, HandOver, Hold, Lock, LockFuture, Owner, Ownership, Request, RwLock,
    Semaphore, Term, ThisThread, TryLock, TryLockFuture, UnlessCrowded, UnlessGranted,
};
pub use ids::{ClientId, FencingToken, LockKind, LockName, MAX_NAME_BYTES, OwnerId, Sink};
pub use losses::Receiver;
pub use stats::{NotGranted, NotGrantedByKind, Stats, Times};
#[doc(hidden)]
pub use time::Driver;
pub use time::{Attendance, CancelToken, Clock, ManualClock};
