//! What users hold in their hands: a client, its locks, guards and requests.

mod builder;
mod cancel;
mod client;
mod guard;
mod insight;
mod lock;
mod owner;
mod request;

pub use builder::ClientBuilder;
pub use cancel::Cancel;
pub use client::Client;
pub use guard::{LockGuard, OwnedGuard};
pub use lock::Lock;
pub use owner::Owner;
pub use request::{LockRequest, OwnedRequest};
