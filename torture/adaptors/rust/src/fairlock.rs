//! fairlock on Redis, PostgreSQL or files, whichever the address names.

use fairlock::settings::{ClientBuilder, Durability, RedisBuilder};
use fairlock::{
    AsyncClient, AsyncGuard, Client, Error, FileBackend, PostgresBackend, RedisBackend, Result, TryLock,
};

use crate::words::{Connected, Said, Words, address, set};

pub struct Fairlock {
    client: AsyncClient,
    guard: Option<AsyncGuard>,
}

fn client() -> Result<Client> {
    let address = address();
    let builder = if address.starts_with("redis") {
        let durable = |redis: RedisBuilder, trust| redis.durable(Durability::default().trust(trust));
        Client::builder(set(RedisBackend::builder(&address), "TRUST_MS", durable).connect()?)
    } else if address.starts_with("postgres") {
        PostgresBackend::migrate(&address)?;
        Client::builder(PostgresBackend::connect(&address)?)
    } else {
        Client::builder(FileBackend::open(&address)?)
    };
    let builder = set(builder, "LEASE_MS", ClientBuilder::lease);
    set(builder, "PLACE_TTL_MS", ClientBuilder::place_ttl).build()
}

pub async fn connect() -> Connected<Fairlock> {
    let client = client()?.to_async();
    Ok(Fairlock { client, guard: None })
}

impl Words for Fairlock {
    async fn lock(&mut self, name: &str) -> Said {
        self.guard = Some(self.client.fair_lock(name)?.lock().await?);
        Ok("granted")
    }

    async fn try_lock(&mut self, name: &str) -> Said {
        let TryLock::Granted(guard) = self.client.fair_lock(name)?.try_lock().await? else {
            return Ok("busy");
        };
        self.guard = Some(guard);
        Ok("granted")
    }

    async fn is_held(&mut self) -> Said {
        Ok(if self.guard.as_ref().is_some_and(|guard| !guard.is_lost()) { "yes" } else { "no" })
    }

    async fn unlock(&mut self) -> Said {
        match self.guard.take().ok_or("nothing is held")?.unlock().await {
            Ok(()) => Ok("ok"),
            Err(Error::Lost(_)) => Ok("lost"),
            Err(error) => Err(error.into()),
        }
    }
}
