//! sqlx's `PgAdvisoryLock`. Its best use asks the session, which owns the lock, whether it is still there.

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgAdvisoryLock, PgAdvisoryLockGuard};
use sqlx::{Either, PgPool, Postgres};

use crate::words::{Connected, Said, Words, address, setting};

pub struct Sqlx {
    pool: PgPool,
    asks: bool,
    guard: Option<PgAdvisoryLockGuard<PoolConnection<Postgres>>>,
}

pub async fn connect() -> Connected<Sqlx> {
    let pool = PgPool::connect(&address()).await?;
    Ok(Sqlx { pool, asks: setting::<bool>("ASKS").unwrap_or_default(), guard: None })
}

impl Words for Sqlx {
    async fn lock(&mut self, name: &str) -> Said {
        let connection = self.pool.acquire().await?;
        self.guard = Some(PgAdvisoryLock::new(name).acquire(connection).await?);
        Ok("granted")
    }

    async fn try_lock(&mut self, name: &str) -> Said {
        let connection = self.pool.acquire().await?;
        match PgAdvisoryLock::new(name).try_acquire(connection).await? {
            Either::Left(guard) => self.guard = Some(guard),
            Either::Right(_) => return Ok("busy"),
        }
        Ok("granted")
    }

    async fn is_held(&mut self) -> Said {
        let (Some(guard), true) = (&mut self.guard, self.asks) else { return Ok("unknown") };
        sqlx::query("SELECT 1").execute(&mut **guard).await?;
        Ok("yes")
    }

    async fn unlock(&mut self) -> Said {
        self.guard.take().ok_or("nothing is held")?.release_now().await?;
        Ok("ok")
    }
}
