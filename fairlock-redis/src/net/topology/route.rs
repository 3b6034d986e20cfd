//! The way to one server, and how much it knows.

use std::sync::Arc;

use redis::{Value, cmd};

use crate::net::commands::Pool;
use crate::net::connection::{Address, Failure};

/// What the server that keeps a lock knows of those who listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listeners {
    /// Whom it does not see hears nothing.
    AllSeen,
    /// Some listen at another server, or are still on their way to this one.
    SomeUnseen,
}

/// Where to ask.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) pool: Arc<Pool>,
    pub(super) mode: Mode,
}

/// How a node is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Direct,
    /// As the one to which the lock's slot is on its way.
    Asking,
}

impl Route {
    pub(super) fn to(pool: &Arc<Pool>) -> Route {
        Route { pool: Arc::clone(pool), mode: Mode::Direct }
    }

    /// Sends one packed command, see [`Pool::call`].
    pub(crate) fn call(&self, packed: &[u8]) -> Result<Value, Failure> {
        match self.mode {
            Mode::Direct => self.pool.call(packed.to_vec()),
            // ASKING is for the next command of the connection: one call, so that nobody's comes in between.
            Mode::Asking => {
                let asking = cmd("ASKING").get_packed_command();
                let mut answers = self.pool.call_many(&[asking.as_slice(), packed]);
                answers.pop().unwrap_or_else(|| Err(Failure::Broken("no answer".to_owned())))
            }
        }
    }
}

/// What one server says of itself.
pub(crate) type Described = (Address, Result<Value, Failure>);
