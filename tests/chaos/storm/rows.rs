//! Sessions of other programs that lock the rows of locks on PostgreSQL.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fairlock_tests::PostgresServer;
use postgres::{Client, Error};

/// How soon it is tried again, if there is nothing to lock, or the session was killed.
const AGAIN: Duration = Duration::from_millis(20);

/// A database whose rows can be locked.
#[derive(Clone)]
pub struct Rows {
    pub server: Arc<PostgresServer>,
    pub database: String,
}

impl Rows {
    /// Locks the rows of these locks for so long: by one transaction; or by one after the other, each of which asks `still_held` and lasts
    /// for `each`.
    pub fn lock(&self, names: Vec<String>, each: Option<Duration>, lasts: Duration) -> JoinHandle<()> {
        let (rows, until) = (self.clone(), Instant::now() + lasts);
        thread::spawn(move || {
            let mut con = None;
            while Instant::now() < until {
                // The server may stand still, or its sessions be killed.
                if con.is_none() {
                    con = rows.server.try_con(&rows.database).ok();
                }
                let locked = con.as_mut().map(|con| transaction(con, &names, each, until));
                con.take_if(|_| matches!(locked, Some(Err(_))));
                if !matches!(locked, Some(Ok(true))) {
                    thread::sleep(AGAIN);
                }
            }
        })
    }
}

/// Whether there was a row.
fn transaction(
    con: &mut Client,
    names: &[String],
    each: Option<Duration>,
    until: Instant,
) -> Result<bool, Error> {
    let mut work = con.transaction()?;
    let held = "select coalesce(bool_or(fairlock.still_held(convert_from(name, 'UTF8'), h_token)), false) from fairlock.lock \
                where convert_from(name, 'UTF8') = any($1)";
    let mut is_locked = each.is_some() && work.query_one(held, &[&names])?.get(0);
    if !is_locked {
        let lock =
            "select from fairlock.lock where convert_from(name, 'UTF8') = any($1) order by name for update";
        is_locked = !work.query(lock, &[&names])?.is_empty();
    }
    if is_locked {
        thread::sleep(each.unwrap_or(Duration::MAX).min(until.saturating_duration_since(Instant::now())));
    }
    work.commit()?;
    Ok(is_locked)
}
