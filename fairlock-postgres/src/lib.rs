//! PostgreSQL backend of fairlock: one row a lock, decided by the rules of `fairlock-line` under its row lock.
//!
//! ```text
//!  doctor ──► builder   locks ──► backend   the questions of core
//!                 ├► renewal   sweep
//!                 ├► fast      a free lock, a release without a line, a renewal: one statement for many callers
//!                 ├► wake_ups  sees to it that a client hears   listener   LISTEN and its checks   poller   looks instead
//!                 └► step      load, decide, write back, commit, tell   queue   who makes it, for whom   question   owned
//!                      ├► attempt    statements of fast parts   row   a lock as columns and bytes   schema   the layout   answer   promises
//!                      ├► recent     the server's clock, and which locks are busy   window   what is swept next
//!                      ├► clients    of this process   link   which of their requests wait   presence
//!                      └► net        connections
//! ```

mod answer;
mod attempt;
mod backend;
mod builder;
mod clients;
#[cfg(test)]
mod conformance;
mod doctor;
mod fast;
mod link;
mod listener;
mod locks;
mod net;
mod owned;
mod poller;
mod presence;
mod recent;
mod renewal;
mod row;
mod schema;
mod step;
mod sweep;
#[cfg(test)]
mod test_server;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wake_up_tests;
mod wake_ups;
mod window;

pub use backend::PostgresBackend;
pub use builder::PostgresBuilder;
pub use clients::WakeUps;
