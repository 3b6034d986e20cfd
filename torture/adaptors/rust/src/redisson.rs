//! The crate redisson: its fair lock, by its client for tasks. It neither renews a fair lock nor tells of a loss.

use redisson::{AsyncRFairLock, AsyncRedissonClient, RedissonConfig};

use crate::words::{Connected, Failure, Said, Words, address, milliseconds};

pub struct Redisson {
    client: AsyncRedissonClient,
    lock: Option<AsyncRFairLock>,
}

pub async fn connect() -> Connected<Redisson> {
    let mut config = RedissonConfig::single_server(&address());
    if let Some(lease) = milliseconds("LEASE_MS") {
        config = config.with_watchdog_timeout(lease); // the lease of a fair lock
    }
    Ok(Redisson { client: AsyncRedissonClient::new(config).await.map_err(failure)?, lock: None })
}

impl Words for Redisson {
    async fn lock(&mut self, name: &str) -> Said {
        let lock = self.client.get_fair_lock(name);
        lock.lock().await.map_err(failure)?;
        self.lock = Some(lock);
        Ok("granted")
    }

    /// Its `try_lock()` does not ask at all: it gives up before the first try.
    async fn try_lock(&mut self, name: &str) -> Said {
        let lock = self.client.get_fair_lock(name);
        let is_granted = lock.try_lock_with_timeout(std::time::Duration::from_millis(1)).await.map_err(failure)?;
        if !is_granted {
            return Ok("busy");
        }
        self.lock = Some(lock);
        Ok("granted")
    }

    async fn is_held(&mut self) -> Said {
        Ok("unknown")
    }

    async fn unlock(&mut self) -> Said {
        let lock = self.lock.take().ok_or("nothing is held")?;
        Ok(if lock.unlock().await.map_err(failure)? { "ok" } else { "lost" })
    }
}

fn failure(error: redisson::RedissonError) -> Failure {
    error.to_string().into()
}
