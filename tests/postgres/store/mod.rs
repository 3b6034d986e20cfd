//! The PostgreSQL store against real servers, and the ways to reach a server.

mod encodings;
mod guide;
mod held;
mod sessions;
#[cfg(feature = "night")]
mod settings;
mod standby;
mod tls;
