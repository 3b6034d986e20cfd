//! rslock on Redis. It neither renews nor tells of a loss; its best use asks the server.

use std::time::Duration;

use rslock::{LockError, LockGuard, LockManager};

use crate::words::{Connected, Said, Words, address, milliseconds, setting};

pub struct RsLock {
    manager: LockManager,
    ttl: Duration,
    asks: bool,
    guard: Option<LockGuard>,
}

pub async fn connect() -> Connected<RsLock> {
    let ttl = milliseconds("LEASE_MS").ok_or("rslock has no default for the TTL")?;
    let asks = setting::<bool>("ASKS").unwrap_or_default();
    Ok(RsLock { manager: LockManager::new(vec![address()]), ttl, asks, guard: None })
}

impl Words for RsLock {
    async fn lock(&mut self, name: &str) -> Said {
        self.guard = Some(self.manager.acquire(name, self.ttl).await?);
        Ok("granted")
    }

    async fn try_lock(&mut self, name: &str) -> Said {
        let mut manager = self.manager.clone();
        manager.set_retry(1, Duration::from_millis(200));
        match manager.lock(name, self.ttl).await {
            Ok(lock) => self.guard = Some(LockGuard { lock }),
            Err(LockError::Unavailable) => return Ok("busy"),
            Err(error) => return Err(error.into()),
        }
        Ok("granted")
    }

    async fn is_held(&mut self) -> Said {
        let (Some(guard), true) = (&self.guard, self.asks) else { return Ok("unknown") };
        let is_freed = self.manager.is_freed(&guard.lock).await?;
        Ok(if is_freed { "no" } else { "yes" })
    }

    async fn unlock(&mut self) -> Said {
        self.guard.take().ok_or("nothing is held")?.release().await; // says nothing
        Ok("ok")
    }
}
