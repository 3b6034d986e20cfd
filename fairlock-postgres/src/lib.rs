//! PostgreSQL backend of fairlock: one row a lock, decided by the rules of `fairlock-rules`, and written by compare and swap.
//!
//! ```text
//!  doctor ──► builder   locks ──► backend   the operations, in the order of the trait
//!                 ├► ask       by steps that callers share   renewal   heartbeats   sweep
//!                 ├► wake_ups  sees to it that a client hears   listener   LISTEN and its checks   poller   looks instead
//!                 ├► step      decides on rows as they were seen, and swaps them: one trip for many callers   swap   of one row
//!                 └► store     what they share
//!                      ├► combiner     who makes a step, for whom   question   command   answer
//!                      ├► row         a lock as columns and bytes   schema   the layout   sql   the statements
//!                      ├► recent      the server's clock, and rows as they were seen   window   what is swept next
//!                      ├► pace        how many renewals a part has
//!                      ├► clients     of this process   link   which of their requests wait   presence
//!                      └► net         connections
//! ```

mod answer;
mod ask;
mod backend;
mod builder;
mod clients;
mod combiner;
mod command;
#[cfg(feature = "servers")]
#[cfg(test)]
mod conformance;
mod doctor;
mod link;
mod listener;
mod locks;
mod net;
mod pace;
mod poller;
mod presence;
mod question;
mod recent;
mod renewal;
mod row;
mod schema;
mod sql;
mod step;
mod store;
mod swap;
mod sweep;
#[cfg(feature = "servers")]
#[cfg(test)]
mod test_server;
#[cfg(test)]
mod test_values;
#[cfg(feature = "servers")]
#[cfg(test)]
mod tests;
mod wake_ups;
mod window;

pub use backend::PostgresBackend;
pub use builder::PostgresBuilder;
pub use clients::WakeUps;
#[cfg(feature = "tls-rustls")]
pub use fairlock_net::rustls;
