//! The operations of the store, in the order of the trait: each asks questions about locks, and steps answer them. The list of locks comes
//! last.

use std::fmt;
use std::ops::Range;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, Weak};
use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendError, BackendErrorKind, ForceReleased, Hold, LockId, LockState,
    Place, Released, Renew, Renewal, Subscription, WakeSink, Withdrawn,
};
use fairlock_core::{ClientId, Error, LockKind, LockName, OwnerId};
use fairlock_rules::{Presence, StoreContext, fits_pattern};

use crate::command::Command;
use crate::net::address::Address;
use crate::net::statement::LIST;
use crate::net::{Row, Statement};
use crate::row::{AFTER, Loaded, NEVER, changed};
use crate::step::{ask, ask_one, renew};
use crate::store::Store;
use crate::wake_ups::{ask_and_hear, place_renewed};

/// How many rows `list.sql` reads.
const PAGE: usize = 500;

/// The longest lease where a crash of the server forgets what was done last: it grants nothing for this time afterwards.
const LONGEST_UNSYNCED: Duration = Duration::from_secs(30);

/// Locks in a PostgreSQL database: one row a lock, written by compare and swap.
///
/// The program's own transaction in that database can ask `select fairlock.still_held(name, token)`, with a guard's name and
/// [token](fairlock_core::FencingToken::as_i64). If that is true, no other owner gets the lock before the transaction has ended.
#[derive(Clone)]
pub struct PostgresBackend(pub(crate) Arc<Store>);

// No call runs code of the program on its thread: no panic of the program leaves the middle of one.
impl UnwindSafe for PostgresBackend {}
impl RefUnwindSafe for PostgresBackend {}

impl fmt::Debug for PostgresBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address { endpoints, user, database, .. } = &self.0.pool.address; // not the password
        f.debug_tuple("PostgresBackend").field(endpoints).field(user).field(database).finish()
    }
}

impl Backend for PostgresBackend {
    fn acquire(&self, asks: &[Acquire<'_>]) -> Vec<Result<Acquired, BackendError>> {
        let (store, deadline) = (&self.0, self.0.pool.deadline());
        let asked = |at: &usize| (&asks[*at].place.lock.name, Command::acquire(&asks[*at]));
        let places: Vec<_> = asks.iter().map(|ask| ask.place).collect();
        ask_and_hear(store, &places, deadline, |these| ask(store, these.iter().map(asked), deadline))
    }

    fn release(&self, holds: &[Hold<'_>]) -> Vec<Result<Released, BackendError>> {
        let asked = holds.iter().map(|hold| (&hold.lock.name, Command::Release(hold.into())));
        let answers = ask(&self.0, asked, self.0.pool.deadline());
        self.0.sweep_if_due();
        answers
    }

    fn adopt(&self, hold: &Hold<'_>, owner: &OwnerId, lease: Duration) -> Result<Renewal, BackendError> {
        ask_one(&self.0, &hold.lock.name, Command::Adopt(hold.into(), owner.clone(), lease))
    }

    fn renew(&self, _: ClientId, items: &[Renew<'_>]) -> Vec<Result<Renewal, BackendError>> {
        let answers = renew(&self.0, items);
        for (item, answer) in items.iter().zip(&answers) {
            if let (Renew::Place { place, .. }, Ok(answer)) = (item, answer) {
                place_renewed(&self.0, place, answer);
            }
        }
        self.0.sweep_if_due();
        answers
    }

    fn withdraw(&self, places: &[Place<'_>]) -> Vec<Result<Withdrawn, BackendError>> {
        let asked = places.iter().map(|place| (&place.lock.name, Command::Withdraw(place.into())));
        let answers = ask(&self.0, asked, self.0.pool.deadline());
        for (place, _) in places.iter().zip(&answers).filter(|(_, answer)| answer.is_ok()) {
            self.0.clients.waits_no_longer(place);
        }
        answers
    }

    fn force_release(&self, lock: &LockId) -> Result<ForceReleased, BackendError> {
        ask_one(&self.0, &lock.name, Command::ForceRelease(lock.clone()))
    }

    fn take_hold(&self, hold: &Hold<'_>) -> Result<ForceReleased, BackendError> {
        ask_one(&self.0, &hold.lock.name, Command::TakeHold(hold.into()))
    }

    fn inspect(&self, lock: &LockId, part: Range<u64>) -> Result<LockState, BackendError> {
        let pool = &self.0.pool;
        let rows = pool.ask(changed([(lock.name.as_str().as_bytes(), NEVER)]), pool.deadline())?;
        let Loaded { entry, last, now } = rows.first().map_or_else(|| Ok(Loaded::default()), Loaded::read)?;
        entry.inspect(
            &StoreContext::after(last).operation(&lock.name, now, &|_| Presence::Present),
            lock,
            part,
        )
    }

    fn subscribe(&self, client: ClientId, sink: Arc<dyn WakeSink>) -> Result<Subscription, BackendError> {
        let (store, name) = (&self.0, client.to_string());
        store.clients.add(&name, sink);
        Ok(Subscription::new(Subscribed { store: Arc::downgrade(store), name }))
    }

    fn reconnects(&self) -> u64 {
        self.0.pool.broken()
    }

    fn supports(&self, _: LockKind) -> bool {
        true
    }

    fn response_timeout(&self) -> Option<Duration> {
        Some(self.0.pool.timeouts.response)
    }

    fn longest_lease(&self) -> Option<Duration> {
        (!self.0.pool.is_synced()).then_some(LONGEST_UNSYNCED)
    }

    fn why_no_longer_lease(&self) -> &'static str {
        "with `synchronous_commit = off` the database may forget a grant in a crash, and then grants nothing for this time; shorten the lease, \
         or set `synchronous_commit` to `on` for the role"
    }

    fn attempt_ttl(&self) -> Option<Duration> {
        Some(self.0.pool.attempt_ttl())
    }
}

/// Ends the client's listening when it is dropped.
struct Subscribed {
    store: Weak<Store>,
    name: String,
}

impl Drop for Subscribed {
    fn drop(&mut self) {
        if let Some(store) = self.store.upgrade() {
            store.clients.remove(&self.name);
        }
    }
}

impl PostgresBackend {
    /// Lists the locks that are held or waited for, by name, each with its holder, its first waiter and the number of waiters
    /// ([`inspect`](fairlock_core::Admin::inspect) reads the others). In `pattern` `*` is any text, `?` one character, `[ab]` and
    /// `[a-c]` a character of a list, `[^ab]` any other character; behind `\` a character stands for itself.
    ///
    /// It reads all rows of locks in use, 500 in each round trip. The list is not a snapshot. A damaged row is left out.
    ///
    /// # Errors
    /// `Unsupported` if a newer version of fairlock keeps one of the locks; `Unavailable` when the server can't be reached; `Denied` without
    /// the right to read.
    pub fn locks(&self, pattern: Option<&str>) -> fairlock_core::Result<Vec<(LockName, LockState)>> {
        let (pool, mut found, mut after) = (&self.0.pool, Vec::new(), Vec::new());
        loop {
            let rows = pool.ask(Statement::new(&LIST, [after.as_slice().into()]), pool.deadline())?;
            for row in &rows {
                let text = std::str::from_utf8(row.bytes(AFTER)?).ok();
                let text = text.filter(|name| fits_pattern(pattern.unwrap_or("*"), name));
                if let Some(name) = text.and_then(|name| LockName::new(name).ok())
                    && let Some(state) = state_of(&name, row).map_err(|error| Error::about(&name, error))?
                {
                    found.push((name, state));
                }
            }
            match rows.last() {
                Some(last) if rows.len() == PAGE => after = last.bytes(AFTER)?.to_vec(),
                _ => return Ok(found),
            }
        }
    }
}

/// None for an unused lock, and for a damaged row.
fn state_of(name: &LockName, row: &Row) -> Result<Option<LockState>, BackendError> {
    let Loaded { entry, last, now } = match Loaded::read(row) {
        Err(failure) if failure.kind == BackendErrorKind::Corrupt => return Ok(None),
        loaded => loaded?,
    };
    let mut store_context = StoreContext::after(last);
    let context = store_context.operation(name, now, &|_| Presence::Present);
    Ok(entry.listed(&context, name))
}
