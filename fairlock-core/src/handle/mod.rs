//! What programs use: a client, its locks, guards and requests.

mod builder;
mod caller;
mod client;
mod guard;
mod insight;
mod lock;
mod owner;
mod request;
mod try_lock;

pub use builder::ClientBuilder;
pub use client::Client;
pub use guard::{Guard, LockGuard, OwnedGuard};
pub use lock::{Lock, OwnedLock};
pub use owner::{Owner, Ownership, ThisThread};
pub use request::{LockRequest, OwnedRequest, Request};
pub use try_lock::TryLock;
