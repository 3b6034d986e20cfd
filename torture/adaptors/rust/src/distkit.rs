//! distkit's `Mutex` on Redis.

use std::sync::Arc;

use distkit::lock::{LockError, LockGuardState, LockOptions, Mutex, MutexGuard};
use distkit::{DistkitError, DistkitRedisKey};
use redis::aio::ConnectionManager;

use crate::words::{Connected, Said, Words, address, milliseconds};

pub struct Distkit {
    connections: ConnectionManager,
    guard: Option<MutexGuard>,
}

pub async fn connect() -> Connected<Distkit> {
    let client = redis::Client::open(address())?;
    Ok(Distkit { connections: client.get_connection_manager().await?, guard: None })
}

impl Distkit {
    fn mutex(&self, name: &str) -> Arc<Mutex> {
        let key = DistkitRedisKey::try_from(name.replace(':', "-")).expect("a key without colons");
        let mut options = LockOptions::new(key, self.connections.clone());
        if let Some(ttl) = milliseconds("LEASE_MS") {
            options.ttl = ttl;
        }
        Mutex::new(options)
    }
}

impl Words for Distkit {
    async fn lock(&mut self, name: &str) -> Said {
        self.guard = Some(self.mutex(name).lock().await?);
        Ok("granted")
    }

    async fn try_lock(&mut self, name: &str) -> Said {
        match self.mutex(name).try_lock().await {
            Ok(guard) => self.guard = Some(guard),
            Err(DistkitError::LockError(LockError::AcquireFail)) => return Ok("busy"),
            Err(error) => return Err(error.into()),
        }
        Ok("granted")
    }

    async fn is_held(&mut self) -> Said {
        let is_held = self.guard.as_ref().is_some_and(|guard| guard.get_state() == LockGuardState::Acquired);
        Ok(if is_held { "yes" } else { "no" })
    }

    async fn unlock(&mut self) -> Said {
        match self.guard.take().ok_or("nothing is held")?.release().await? {
            LockGuardState::Released => Ok("ok"),
            _ => Ok("lost"),
        }
    }
}
