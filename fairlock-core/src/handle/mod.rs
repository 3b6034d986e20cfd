//! What programs use: a client, its locks, guards and requests.

mod caller;
mod client;
mod guard;
mod insight;
mod lock;
mod owner;
mod request;
mod try_lock;

pub use client::{Client, ClientBuilder};
pub use guard::{Guard, LockGuard, OwnedGuard};
pub use lock::{Lock, OwnedLock};
pub use owner::{Owner, Ownership, ThisThread};
pub use request::{LockRequest, OwnedRequest, Request};
pub use try_lock::TryLock;
