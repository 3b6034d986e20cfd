//! The flows that do I/O, on the thread of their caller, or on the one for tasks: how a lock is acquired, passed on, renewed, released
//! and kept, how a caller leaves the line, and how a client ends.

mod acquire;
mod chores;
mod counted;
mod keep;
mod late;
mod leave;
mod release;
mod renew;
mod shutdown;
mod tasks;

pub(crate) use acquire::{Taken, Wish, error_of};
pub(crate) use chores::TURN;
pub(crate) use leave::Waited;
pub(crate) use release::Effort;
