//! The flows that do I/O on the thread of their caller: how a lock is acquired, passed on, renewed, released and kept, and how a
//! caller leaves the queue.

mod acquire;
mod ask;
mod cleanup;
mod counted;
mod former;
mod keep;
mod leave;
mod release;
mod renew;

pub(crate) use acquire::{Taken, Wish, error_of};
pub(crate) use cleanup::{CleanupRun, STEP_LIMIT};
pub(crate) use counted::{count, end_of, without};
pub(crate) use leave::WaitOutcome;
#[cfg(test)]
pub(crate) use leave::give_up;
pub(crate) use release::{Effort, GivenUp};

use std::sync::Arc;

use crate::backend::Backend;
use crate::backlog::Backlog;
use crate::config::Config;
use crate::ids::ClientId;
use crate::ledger::Ledger;
use crate::outage::Outage;
use crate::timers::Timers;

/// The parts of a client that the flows use.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub(crate) id: ClientId,
    pub(crate) config: &'a Arc<Config>,
    pub(crate) backend: &'a dyn Backend,
    pub(crate) ledger: &'a Ledger,
    pub(crate) timers: &'a Timers,
    pub(crate) backlog: &'a Backlog,
    pub(crate) outage: &'a Outage,
}
