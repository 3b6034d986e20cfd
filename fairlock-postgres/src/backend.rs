//! The backend: each question is a step on one lock, but for heartbeats of holds, what only looks, and what a fast part can do.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendError, ForceReleased, Hold, HoldCountSet, HoldKept, LockId, LockState,
    Place, Released, Renew, Renewal, RequestId, Subscription, WakeSink, Withdrawn,
};
use fairlock_core::{ClientId, LockKind};
use fairlock_line::LockEntry;

use crate::net::address::Address;
use crate::owned;
use crate::schema::LONGEST_UNSYNCED;
use crate::step::{Question, Store};

/// Locks in a PostgreSQL database: one row a lock, decided under its row lock.
///
/// The program's own transaction in that database can ask `select fairlock.still_held(name, token)`, with a guard's name and
/// [token](fairlock_core::FencingToken::as_i64). If that is true, no other owner gets the lock before the transaction has ended.
#[derive(Clone)]
pub struct PostgresBackend(pub(crate) Arc<Store>);

impl fmt::Debug for PostgresBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address { endpoints, user, database, .. } = &self.0.pool.address; // not the password
        f.debug_tuple("PostgresBackend").field(endpoints).field(user).field(database).finish()
    }
}

impl Backend for PostgresBackend {
    fn acquire(&self, asks: &[Acquire<'_>]) -> Vec<Result<Acquired, BackendError>> {
        self.0.acquire(asks)
    }

    fn set_hold_count(&self, hold: &Hold<'_>, holds: u32) -> Result<HoldCountSet, BackendError> {
        let set = owned::about(hold, move |entry, turn, hold, _| entry.set_hold_count(turn, hold, holds));
        self.0.step(&hold.lock.name, set)
    }

    fn release(&self, holds: &[Hold<'_>]) -> Vec<Result<Released, BackendError>> {
        let answers = self.0.release(holds);
        self.0.sweep_if_due();
        answers
    }

    fn keep(&self, hold: &Hold<'_>, keeper: RequestId, lease: Duration) -> Result<HoldKept, BackendError> {
        let keep = owned::about(hold, move |entry, turn, hold, late| {
            entry.keep(turn, hold, keeper, lease.saturating_add(late))
        });
        self.0.step(&hold.lock.name, keep)
    }

    fn renew(&self, _: ClientId, items: &[Renew<'_>]) -> Vec<Result<Renewal, BackendError>> {
        let answers = self.0.renew(items);
        for (item, answer) in items.iter().zip(&answers) {
            if let (Renew::Place { place, .. }, Ok(answer)) = (item, answer) {
                self.0.place_renewed(place, answer);
            }
        }
        self.0.sweep_if_due();
        answers
    }

    fn withdraw(&self, places: &[Place<'_>]) -> Vec<Result<Withdrawn, BackendError>> {
        let store = &self.0;
        let deadline = store.pool.deadline();
        let question = |place: &Place<'_>| {
            Question::new(&place.lock.name, deadline, None, owned::about_place(place, LockEntry::withdraw))
        };
        let answers = store.ask(places.iter().map(question), deadline);
        for (place, _) in places.iter().zip(&answers).filter(|(_, answer)| answer.is_ok()) {
            store.clients.waits_no_longer(place);
        }
        answers
    }

    fn kick(&self, place: &Place<'_>) -> Result<Withdrawn, BackendError> {
        self.0.step(&place.lock.name, owned::about_place(place, LockEntry::kick))
    }

    fn force_release(&self, lock: &LockId) -> Result<ForceReleased, BackendError> {
        let id = lock.clone();
        self.0.step(&lock.name, move |entry, turn, _| entry.force_release(turn, &id))?
    }

    fn take_hold(&self, hold: &Hold<'_>) -> Result<ForceReleased, BackendError> {
        let take = owned::about(hold, |entry, turn, hold, _| entry.take_hold(turn, hold));
        self.0.step(&hold.lock.name, take)
    }

    fn inspect(&self, lock: &LockId, part: Range<u64>) -> Result<LockState, BackendError> {
        self.0.look(&lock.name, |entry, turn| entry.inspect(turn, lock, part))?
    }

    fn subscribe(&self, client: ClientId, sink: Arc<dyn WakeSink>) -> Result<Subscription, BackendError> {
        let (store, name) = (&self.0, client.to_string());
        store.clients.add(&name, sink);
        Ok(Subscription::new(Subscribed { store: Arc::downgrade(store), name }))
    }

    fn reconnects(&self) -> u64 {
        self.0.pool.broken()
    }

    fn keeps(&self, _: LockKind) -> bool {
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
