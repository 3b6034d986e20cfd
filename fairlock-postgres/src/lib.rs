//! PostgreSQL backend of fairlock: one row a lock, decided by the rules of `fairlock-line` under its row lock.
//!
//! ```text
//!  doctor ──► builder   locks ──► backend   the questions of core
//!                 ├► renewal   sweep
//!                 └► step      load, decide, write back, commit, tell
//!                      ├► row        a lock as columns and bytes   schema   the layout
//!                      ├► wake_ups   the clients of this process, and their listening   presence
//!                      └► net        connections
//! ```

mod backend;
mod builder;
#[cfg(test)]
mod conformance;
mod doctor;
mod locks;
mod net;
mod presence;
mod renewal;
mod row;
mod schema;
mod step;
mod sweep;
#[cfg(test)]
mod test_server;
#[cfg(test)]
mod tests;
mod wake_ups;

pub use backend::PostgresBackend;
pub use builder::PostgresBuilder;
