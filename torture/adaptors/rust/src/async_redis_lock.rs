//! async-redis-lock on Redis.

use std::time::Duration;

use async_redis_lock::{Error, Lock, Locker, Options};

use crate::words::{Connected, Said, Words, address, setting};

pub struct AsyncRedisLock {
    locker: Locker,
    options: Options,
    held: Option<Lock>,
}

pub async fn connect() -> Connected<AsyncRedisLock> {
    let locker = Locker::from_redis_url(&address()).await?;
    let mut options = Options::new();
    if setting("PATIENT") == Some(true) {
        options = options.timeout(None).retry(Duration::from_millis(20));
    }
    Ok(AsyncRedisLock { locker, options, held: None })
}

impl Words for AsyncRedisLock {
    async fn lock(&mut self, name: &str) -> Said {
        match self.locker.acquire_with_options(&self.options, name).await {
            Ok(lock) => self.held = Some(lock),
            Err(Error::Timeout) => return Ok("timeout"),
            Err(error) => return Err(error.into()),
        }
        Ok("granted")
    }

    async fn try_lock(&mut self, name: &str) -> Said {
        let options = self.options.clone().timeout(Some(Duration::ZERO));
        match self.locker.acquire_with_options(&options, name).await {
            Ok(lock) => self.held = Some(lock),
            Err(Error::Timeout) => return Ok("busy"),
            Err(error) => return Err(error.into()),
        }
        Ok("granted")
    }

    async fn is_held(&mut self) -> Said {
        Ok(if self.held.as_ref().is_some_and(|held| !held.is_lost()) { "yes" } else { "no" })
    }

    async fn unlock(&mut self) -> Said {
        match self.held.take().ok_or("nothing is held")?.release().await {
            Ok(()) => Ok("ok"),
            Err(Error::IdNotFound) => Ok("lost"),
            Err(error) => Err(error.into()),
        }
    }
}
