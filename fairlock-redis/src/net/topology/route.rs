//! The way to one server, and what it can answer.

use std::sync::Arc;

use redis::{Value, cmd};

use crate::net::commands::Pool;
use crate::net::connection::{Address, Failure};

/// Which server to ask, and how.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) pool: Arc<Pool>,
    /// With ASKING first: the key's slot is migrating to this node.
    pub(super) is_asking: bool,
    /// The configuration epoch under which a majority names the server; 0 where none is asked.
    pub(crate) epoch: u64,
    /// The sentinels that named the server: how many are a majority, and a word for each run of a sentinel's process.
    pub(crate) voters: Option<Arc<str>>,
}

impl Route {
    pub(super) fn to(pool: &Arc<Pool>) -> Route {
        Route { pool: Arc::clone(pool), is_asking: false, epoch: 0, voters: None }
    }

    /// Sends one packed command, see [`Pool::call`].
    pub(crate) fn call(&self, packed: &[u8]) -> Result<Value, Failure> {
        if !self.is_asking {
            return self.pool.call(packed);
        }
        // ASKING holds for the next command of the connection: one call, so that no other command comes in between.
        let asking = cmd("ASKING").get_packed_command();
        let mut answers = self.pool.call_many(&[asking.as_slice(), packed]);
        answers.pop().unwrap_or_else(|| Err(Failure::Broken("no answer".into())))
    }

    /// See [`Pool::call_as_known`]. In a cluster nothing is known of the listeners.
    pub(crate) fn call_as_known(&self, pack: impl Fn() -> Vec<u8>) -> Result<Value, Failure> {
        if self.is_asking { self.call(&pack()) } else { self.pool.call_as_known(pack) }
    }
}

/// A server, and its reply to a question about itself.
pub(crate) type Described = (Address, Result<Value, Failure>);
