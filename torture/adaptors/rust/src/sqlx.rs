//! sqlx's `PgAdvisoryLock`. Its best use asks the session, which owns the lock, whether it is still there.

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgAdvisoryLock, PgAdvisoryLockGuard};
use sqlx::{Either, PgPool, Postgres};

use crate::words::{Said, Words, address, setting, text};

pub struct Sqlx {
    pool: PgPool,
    asks: bool,
    guard: Option<PgAdvisoryLockGuard<PoolConnection<Postgres>>>,
}

pub async fn connect() -> Result<Sqlx, String> {
    let pool = PgPool::connect(&address()).await.map_err(text)?;
    Ok(Sqlx { pool, asks: setting::<bool>("ASKS").unwrap_or_default(), guard: None })
}

impl Words for Sqlx {
    async fn lock(&mut self, name: &str) -> Said {
        let connection = self.pool.acquire().await.map_err(text)?;
        self.guard = Some(PgAdvisoryLock::new(name).acquire(connection).await.map_err(text)?);
        Ok("granted")
    }

    async fn try_lock(&mut self, name: &str) -> Said {
        let connection = self.pool.acquire().await.map_err(text)?;
        match PgAdvisoryLock::new(name).try_acquire(connection).await.map_err(text)? {
            Either::Left(guard) => self.guard = Some(guard),
            Either::Right(_) => return Ok("busy"),
        }
        Ok("granted")
    }

    async fn is_held(&mut self) -> Said {
        let (Some(guard), true) = (&mut self.guard, self.asks) else { return Ok("unknown") };
        sqlx::query("SELECT 1").execute(&mut **guard).await.map_err(text)?;
        Ok("yes")
    }

    async fn unlock(&mut self) -> Said {
        self.guard.take().ok_or("nothing is held")?.release_now().await.map_err(text)?;
        Ok("ok")
    }
}
