//! PostgreSQL backend of fairlock: one row a lock, decided by the rules of `fairlock-rules` under its row lock.
//!
//! ```text
//!  doctor ──► builder   locks ──► backend   the operations, in the order of the trait
//!                 ├► ask       by flights and steps that callers share   renewal   heartbeats   sweep
//!                 ├► wake_ups  sees to it that a client hears   listener   LISTEN and its checks   poller   looks instead
//!                 ├► fast      a free lock, a release without a queue, a renewal: one statement for many callers
//!                 ├► step      load, decide, send what was planned
//!                 └► store     what they share
//!                      ├► combiner     who makes a flight or a step, for whom   question   command   attempt   answer
//!                      ├► row         a lock as columns and bytes   schema   the layout   sql   the statements
//!                      ├► recent      the server's clock, and which locks are busy   window   what is swept next
//!                      ├► pace        how many renewals a part has
//!                      ├► clients     of this process   link   which of their requests wait   presence
//!                      └► net         connections
//! ```

mod answer;
mod ask;
mod attempt;
mod backend;
mod builder;
mod clients;
mod combiner;
mod command;
#[cfg(feature = "servers")]
#[cfg(test)]
mod conformance;
mod doctor;
mod fast;
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
mod sweep;
#[cfg(feature = "servers")]
#[cfg(test)]
mod test_server;
#[cfg(test)]
mod test_values;
#[cfg(feature = "servers")]
#[cfg(test)]
mod tests;
#[cfg(feature = "servers")]
#[cfg(test)]
mod wake_up_tests;
mod wake_ups;
mod window;

pub use backend::PostgresBackend;
pub use builder::PostgresBuilder;
pub use clients::WakeUps;
#[cfg(feature = "tls-rustls")]
pub use fairlock_net::rustls;
