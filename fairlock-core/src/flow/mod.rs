//! The flows that do I/O on the thread of their caller: how a lock is acquired, passed on, renewed, released and kept, and how a
//! caller leaves the line. Each names what it takes of the client.

mod acquire;
mod ask;
mod counted;
mod former;
mod keep;
mod leave;
mod release;
mod renew;
mod turn;

pub(crate) use acquire::{Acquiring, Taken, Wish, error_of};
pub(crate) use ask::Asking;
pub(crate) use counted::count;
pub(crate) use keep::keep;
#[cfg(test)]
pub(crate) use leave::give_up;
pub(crate) use leave::{Waited, drop_share};
pub(crate) use release::{Effort, GivenUp, Releasing};
pub(crate) use renew::Renewing;
pub(crate) use turn::{TURN, Turn};
