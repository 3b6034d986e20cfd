//! Locks on real Redis servers: layouts, settings, deployments, faults. `conformance.rs` has the suite.

#[cfg(feature = "night")]
mod cluster;
mod connections;
#[cfg(feature = "night")]
mod durable;
mod errors;
mod hand_off;
#[cfg(feature = "night")]
mod managed;
#[cfg(feature = "night")]
mod processes;
#[cfg(feature = "night")]
mod sentinel;
mod server_faults;
mod shared;
mod tls;
