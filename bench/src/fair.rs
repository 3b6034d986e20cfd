//! fairlock on Redis, used as in its README.

use std::time::Duration;

use fairlock::{Client, Discipline, RedisBackend};

use crate::Outcome;
use crate::peer::{Lock, Peer};
use crate::workload::Order;

pub struct Fair(Client);

impl Fair {
    pub fn connect(url: &str, order: &Order) -> Outcome<Fair> {
        // A lease has to be twice as long as a response may take.
        let response = Duration::from_secs(1).min(order.lease / 2);
        let backend = RedisBackend::builder(url)
            .discipline(Discipline::HandOff)
            .response_timeout(response)
            .connect()?;
        Ok(Fair(Client::builder(backend).lease(order.lease).build()?))
    }
}

impl Peer for Fair {
    type Lock = fairlock::Lock;

    fn lock(&self, name: &str) -> Outcome<fairlock::Lock> {
        Ok(self.0.fair_lock(name)?)
    }

    fn polled(&self) -> Option<u64> {
        Some(self.0.stats().granted_by_polling)
    }
}

impl Lock for fairlock::Lock {
    fn hold(&self, held: &mut dyn FnMut()) -> Outcome {
        let guard = fairlock::Lock::lock(self)?;
        held();
        Ok(guard.unlock()?)
    }

    fn keep(&self) -> Outcome {
        fairlock::Lock::lock(self)?.leak();
        Ok(())
    }
}
