//! PostgreSQL backend of fairlock: one row a lock, decided by the rules of `fairlock-rules`, and written by compare and swap.
//!
//! ```text
//!  doctor ──► backend   connects, with settings; the operations, in the order of the trait
//!                 ├► wake_ups    sees to it that a client hears: by LISTEN, or by polling
//!                 ├► step        decides on rows as they were seen, and swaps them: one trip for many callers; heartbeats
//!                 ├► row         a lock as columns and bytes, and the swap of one row
//!                 └► store       what they share: the server's clock, rows as they were seen, what is swept next
//!                      ├► combiner   who makes a step, for which questions   command   and its answer
//!                      ├► clients    of this process, and which of their requests wait
//!                      └► net        connections, statements, the tables
//! ```

mod backend;
mod clients;
mod combiner;
mod command;
#[cfg(feature = "servers")]
#[cfg(test)]
mod conformance;
mod doctor;
mod net;
mod row;
mod step;
mod store;
#[cfg(feature = "servers")]
#[cfg(test)]
mod test_server;
#[cfg(test)]
#[path = "tests/values.rs"]
mod test_values;
#[cfg(feature = "servers")]
#[cfg(test)]
mod tests;
mod wake_ups;

pub use backend::{PostgresBackend, PostgresBuilder};
pub use clients::WakeUps;
#[cfg(feature = "rustls-0_23")]
pub use fairlock_net::rustls;
