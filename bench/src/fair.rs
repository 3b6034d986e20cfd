//! fairlock on Redis and on PostgreSQL, used as in its README.

use std::time::Duration;

use fairlock::backend::Backend;
use fairlock::settings::{Discipline, Durability};
use fairlock::{Client, RedisBackend};

use crate::Outcome;
use crate::peer::{Lock, Peer};
use crate::workload::Order;

pub struct Fair(pub Client);

impl Fair {
    /// A durable one on a server that is new to it.
    pub fn connect(url: &str, order: &Order, durability: Option<Durability>) -> Outcome<Fair> {
        // A lease has to be twice as long as a response may take.
        let response = Duration::from_secs(1).min(order.lease / 2);
        let mut builder =
            RedisBackend::builder(url).discipline(Discipline::HandOff).response_timeout(response);
        if let Some(durability) = durability {
            builder = builder.durable(durability);
        }
        let backend = builder.connect()?;
        if durability.is_some() {
            backend.begin_life()?;
        }
        let lease = backend.longest_lease().map_or(order.lease, |longest| longest.min(order.lease));
        Ok(Fair(Client::builder(backend).lease(lease).build()?))
    }

    #[cfg(feature = "postgres")]
    pub fn connect_to_postgres(url: &str, order: &Order) -> Outcome<Fair> {
        let backend = fairlock::PostgresBackend::connect(url)?;
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

    fn find_held(&self) -> Outcome {
        self.try_lock()?.granted().map_or(Ok(()), |_| Err("it was free".into()))
    }
}
