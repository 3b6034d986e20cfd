//! Locks on real PostgreSQL servers.

#[cfg(feature = "night")]
mod faults;
mod store;
