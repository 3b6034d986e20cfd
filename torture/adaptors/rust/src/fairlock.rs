//! fairlock on Redis, PostgreSQL or files, whichever the address names.

use fairlock::{
    AsyncClient, AsyncGuard, Client, Durability, Error, FileBackend, PostgresBackend, RedisBackend, Result,
    TryLock,
};

use crate::words::{Said, Words, address, milliseconds, text};

pub struct Fairlock {
    client: AsyncClient,
    guard: Option<AsyncGuard>,
}

fn client() -> Result<Client> {
    let address = address();
    let mut builder = if address.starts_with("redis") {
        let mut redis = RedisBackend::builder(&address);
        if let Some(trust) = milliseconds("TRUST_MS") {
            redis = redis.durable(Durability::default().trust(trust));
        }
        Client::builder(redis.connect()?)
    } else if address.starts_with("postgres") {
        PostgresBackend::migrate(&address)?;
        Client::builder(PostgresBackend::connect(&address)?)
    } else {
        Client::builder(FileBackend::open(&address)?)
    };
    if let Some(lease) = milliseconds("LEASE_MS") {
        builder = builder.lease(lease);
    }
    if let Some(ttl) = milliseconds("PLACE_TTL_MS") {
        builder = builder.place_ttl(ttl);
    }
    builder.build()
}

pub async fn connect() -> std::result::Result<Fairlock, String> {
    let client = AsyncClient::connect(client).await.map_err(text)?;
    Ok(Fairlock { client, guard: None })
}

impl Words for Fairlock {
    async fn lock(&mut self, name: &str) -> Said {
        self.guard = Some(self.client.fair_lock(name).map_err(text)?.lock().await.map_err(text)?);
        Ok("granted")
    }

    async fn try_lock(&mut self, name: &str) -> Said {
        match self.client.fair_lock(name).map_err(text)?.try_lock().await.map_err(text)? {
            TryLock::Granted(guard) => self.guard = Some(guard),
            TryLock::Busy(_) => return Ok("busy"),
        }
        Ok("granted")
    }

    async fn is_held(&mut self) -> Said {
        Ok(if self.guard.as_ref().is_some_and(|guard| !guard.is_lost()) { "yes" } else { "no" })
    }

    async fn unlock(&mut self) -> Said {
        match self.guard.take().ok_or("nothing is held")?.unlock().await {
            Ok(()) => Ok("ok"),
            Err(Error::Lost(_)) => Ok("lost"),
            Err(error) => Err(text(error)),
        }
    }
}
