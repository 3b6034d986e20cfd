//! What the operations of a backend share.

use parking_lot::Mutex;

use crate::clients::Clients;
use crate::combiner::Combiner;
use crate::net::pool::Pool;
use crate::pace::Pace;
use crate::recent::Recent;
use crate::window::Sweeper;

pub(crate) struct Store {
    pub(crate) pool: Pool,
    /// The clients of this process.
    pub(crate) clients: Clients,
    /// What recent answers have told.
    pub(crate) recent: Recent,
    /// The questions that wait for a step.
    pub(crate) combiner: Combiner,
    pub(crate) sweeper: Mutex<Sweeper>,
    pub(crate) pace: Pace,
}

impl Store {
    /// A store that has not connected.
    pub(crate) fn new(pool: Pool, connections: usize, clients: Clients) -> Store {
        let combiner = Combiner::new(connections, pool.timeouts.response / 2);
        let (sweeper, pace) = (Mutex::new(Sweeper::new()), Pace::new());
        Store { pool, clients, recent: Recent::default(), combiner, sweeper, pace }
    }
}
