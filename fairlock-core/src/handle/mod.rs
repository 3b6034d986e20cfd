//! What programs use: a client, its locks, guards and requests.

mod all_guard;
mod caller;
mod client;
mod guard;
mod insight;
mod lock;
mod owner;
mod request;
mod rw_lock;
mod semaphore;
mod try_lock;

pub use all_guard::AllGuard;
pub use client::{Client, ClientBuilder};
pub use guard::{Guard, LockGuard, OwnedGuard};
pub use lock::{Lock, OwnedLock};
pub use owner::{Owner, Ownership, ThisThread};
pub use request::{LockRequest, OwnedRequest, Request};
pub use rw_lock::RwLock;
pub use semaphore::Semaphore;
pub use try_lock::TryLock;
