//! Commands and their replies: a pool of connections to one server that any number of threads share.

mod batch;
mod command_connection;
mod distance;
mod dry_run;
mod leads_to;
mod listeners;
mod pool;
mod server_clock;
mod waiting_call;

pub(crate) use command_connection::CommandConnection;
pub(crate) use dry_run::dry_run;
pub(crate) use listeners::{ALL_ARE_BACK, Listeners};
pub(crate) use pool::Pool;
pub(crate) use server_clock::{attempt_length, attempt_ttl};
