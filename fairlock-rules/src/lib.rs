//! The rules of fairlock's locks: who is next, how long holds and places last, tickets, tokens, and what clients are told.
//!
//! They know no store, no clock, no thread and no I/O. A store that can load the state of a lock, keep other clients out
//! meanwhile, and write the state back gets fair, plain and read-write locks and semaphores by these rules. The memory backend is
//! a map of [`LockEntry`]. `fairlock-file` is a small store to read.
//!
//! ```
//! use std::time::Duration;
//!
//! use fairlock_core::backend::{Acquire, Acquired, LockId, Place, RequestId};
//! use fairlock_core::{LockKind, LockName, OwnerId};
//! use fairlock_rules::{LockEntry, Presence, StoreContext};
//!
//! # let lock = LockId::new(LockName::new("orders")?, LockKind::Fair);
//! # let ann = OwnerId::new("ann:1");
//! # let ask = Acquire::new(Place::new(&lock, &ann, RequestId::new(1)), Duration::from_secs(30));
//! # let (mut state, mut last, server_time) = (LockEntry::default().encode(), 0, Duration::from_secs(1_800_000_000));
//! // Load. From here on no other client changes this lock.
//! let mut entry = LockEntry::decode(&state, last)?;
//! let mut store = StoreContext::after(last);
//! // Decide, by the store's clock.
//! let answer = entry.acquire(&mut store.operation(&lock.name, server_time, &|_owner| Presence::Present), &ask)?;
//! // Write back.
//! (state, last) = (entry.encode(), store.last_number());
//! // Last, when others may come again: nothing depends on a message.
//! for wake_up in store.take_wake_ups() {
//!     println!("to client {}: {wake_up}", wake_up.owner.client());
//! }
//! assert!(matches!(answer, Acquired::Granted { .. }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The questions and answers are those of [`fairlock_core::backend`]: a store that decides by these rules implements that trait.
//!
//! An operation reads, plans, writes and tells, as the scripts of the Redis backend do. `lock_entry/rule.rs` is the one rule of who is
//! next, and stands beside `lib/rule.lua` there: the same names in the same order, so a change of the rule is made in both.
//!
//! ```text
//!  lock_entry   one lock and its kind   operations   acquire, renew, release, …; a list
//!     │           rule   who is next, and when to ask again   holds   encoded
//!     ├► queue      places by ticket   hear   restore   the queue's clock   who waits for a plain lock   encoded
//!     └► context    of one operation; and of the store: the sequence, and the messages; mistakes, for models
//!          └► bytes   values as bytes
//! ```

mod bytes;
mod context;
mod lock_entry;
mod queue;

pub use bytes::DecodeError;
#[cfg(feature = "model")]
pub use context::Wrong;
pub use context::{Moment, OperationContext, Presence, StoreContext, WakeUp, WakeUpKind};
#[cfg(feature = "model")]
pub use lock_entry::Parts;
pub use lock_entry::{GrantedHold, LockEntry, fits_pattern, lock_of, renew_by_lock};
#[cfg(feature = "model")]
pub use queue::{ClockParts, PlaceParts, QueueParts};
