//! The lock of a replay: a [`LockEntry`] at times of the history, which draws the numbers that the history tells.

use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, Hold, LockId, Place, Released, Renew, Renewal, RequestId, Wait,
};
use fairlock_core::{FencingToken, LockKind, LockName, OwnerId};
use fairlock_rules::{GrantedHold, LockEntry, OperationContext, Presence, StoreContext};

use super::calls::Call;

pub(super) const MS: u64 = 1_000_000;
/// The lock has this many numbers for each recorded one. Steps whose numbers are not recorded draw from these.
const ROOM: u64 = 1024;
/// Above all numbers that the clock can give.
const BASE: u64 = 1 << 60;
/// Holds and places last through their last millisecond, as on Redis.
const THROUGH: Duration = Duration::from_micros(500);
/// Stands for a request whose answer no process has seen, and for the end of a hold.
const UNSEEN: RequestId = RequestId::new(u64::MAX);

pub(super) type Millis = u64;

/// The requests are the calls of the history.
pub(super) struct Lock {
    id: LockId,
    entry: LockEntry,
    /// The last number that was drawn.
    last: u64,
    /// The owner of each call, and the ticket that it was told.
    owners: Vec<(OwnerId, u64)>,
    /// Owner of what no process has seen.
    nobody: OwnerId,
    lease: Duration,
    ttl: Duration,
}

impl Lock {
    pub(super) fn new(calls: &[Call], lease: Millis, ttl: Millis) -> Lock {
        let [lease, ttl] = [lease, ttl].map(|time| Duration::from_millis(time) + THROUGH);
        let id = LockId::new(LockName::new("replayed").expect("a name"), LockKind::Fair);
        let owner = |call: &Call| (OwnerId::new(&format!("{}:0", call.caller)), 0);
        Lock {
            id,
            entry: LockEntry::default(),
            last: 0,
            owners: calls.iter().map(owner).collect(),
            nobody: OwnerId::new("nobody:0"),
            lease,
            ttl,
        }
    }

    /// The last number that was drawn.
    pub(super) fn last_number(&self) -> u64 {
        self.last
    }

    /// The hold, if there is one, also after its end.
    pub(super) fn hold(&mut self) -> Option<GrantedHold> {
        let hold = self.entry.take_sole_hold()?;
        self.entry.put_sole_hold(hold.clone());
        Some(hold)
    }

    /// The last millisecond of the hold; 0 without one.
    pub(super) fn lease_end(&mut self) -> Millis {
        self.hold().map_or(0, |hold| millis(hold.ends))
    }

    /// The hold lasts until then, if not for longer.
    pub(super) fn hold_until(&mut self, at: u64) {
        self.change_hold(|hold| GrantedHold { ends: hold.ends.max(moment(at) + THROUGH), ..hold });
    }

    /// The hold ends so much earlier, but not before now.
    pub(super) fn end_earlier(&mut self, now: u64, by: Millis) {
        let by = Duration::from_millis(by);
        self.change_hold(|hold| GrantedHold {
            ends: hold.ends.saturating_sub(by).max((moment(now) + THROUGH).min(hold.ends)),
            ..hold
        });
    }

    fn change_hold(&mut self, change: impl FnOnce(GrantedHold) -> GrantedHold) {
        if let Some(hold) = self.entry.take_sole_hold() {
            self.entry.put_sole_hold(change(hold));
        }
    }

    /// A request that no process has seen has the lock at this moment.
    pub(super) fn hold_unseen(&mut self, now: u64) {
        self.entry.take_sole_hold();
        let (since, ends) = (moment(now), moment(now) + THROUGH);
        let (owner, token) = (self.nobody.clone(), FencingToken::new(0));
        let label = "".into();
        self.entry.put_sole_hold(GrantedHold {
            owner,
            request: UNSEEN,
            token,
            units: 1,
            holds: 1,
            since,
            ends,
            label,
        });
    }

    /// A request takes a place.
    pub(super) fn queue(&mut self, now: u64, index: usize, ticket: Option<u64>) -> Acquired {
        let answer = self.acquire(now, index, Wait::Forever, ticket);
        if let Acquired::Queued { ticket, .. } = answer {
            self.owners[index].1 = ticket;
        }
        answer
    }

    /// A request that may have a place asks again. Returns whether it has one.
    pub(super) fn ask_again(&mut self, now: u64, index: usize) -> bool {
        let has_place = self.owners[index].1 > 0;
        if has_place {
            self.acquire(now, index, Wait::Forever, None);
        }
        has_place
    }

    /// A request takes the free lock.
    pub(super) fn take(&mut self, now: u64, index: usize, token: u64) -> Acquired {
        self.acquire(now, index, Wait::No, Some(token))
    }

    fn acquire(&mut self, now: u64, index: usize, wait: Wait, told: Option<u64>) -> Acquired {
        let lease = self.lease;
        let answer = self.command(now, told, |lock, entry, context| {
            let mut place = lock.place(index);
            place.wait = wait;
            entry.acquire(context, &Acquire::new(place, lease))
        });
        answer.expect("the name is no other lock")
    }

    pub(super) fn withdraw(&mut self, now: u64, index: usize) {
        self.command(now, None, |lock, entry, context| entry.withdraw(context, &lock.place(index)));
    }

    /// The holder gives the lock up. `token` is that of the next hold, if it is known. Returns whether the
    /// lock was held.
    pub(super) fn release(&mut self, now: u64, token: Option<u64>) -> bool {
        let Some(held) = self.hold() else { return false };
        let released = self.command(now, token, |lock, entry, context| {
            entry.release(context, &Hold::new(&lock.id, &held.owner, held.request, held.token))
        });
        released == Released::Released
    }

    /// Returns whether the hold lives on.
    pub(super) fn renew_hold(&mut self, now: u64) -> bool {
        let Some(held) = self.hold() else { return false };
        let lease = self.lease;
        let renewed = self.command(now, None, |lock, entry, context| {
            let hold = Hold::new(&lock.id, &held.owner, held.request, held.token);
            entry.renew(context, &[Renew::Hold { hold, holds: 1, lease }])
        });
        renewed == [Renewal::Renewed]
    }

    /// Returns whether the request has a place.
    pub(super) fn renew_place(&mut self, now: u64, index: usize) -> bool {
        let lease = self.lease;
        let renewed = self.command(now, None, |lock, entry, context| {
            entry.renew(context, &[Renew::Place { place: lock.place(index), lease }])
        });
        matches!(renewed[..], [Renewal::Waiting { .. }])
    }

    /// The request that would get the lock if nobody had it.
    pub(super) fn first(&self, now: u64) -> Option<usize> {
        let mut entry = LockEntry::decode(&self.entry.encode()).expect("it was written just now");
        entry.take_sole_hold();
        let nobody = Place::new(&self.id, &self.nobody, UNSEEN);
        entry.withdraw(
            &mut StoreContext::default().operation(&self.id.name, moment(now), &|_| Presence::Present),
            &nobody,
        );
        entry.take_sole_hold().and_then(|hold| usize::try_from(hold.request.get()).ok())
    }

    /// `told`: the number that is drawn first, if that is known.
    fn command<A>(
        &mut self,
        now: u64,
        told: Option<u64>,
        run: impl FnOnce(&Lock, &mut LockEntry, &mut OperationContext<'_>) -> A,
    ) -> A {
        let before = told.map_or(self.last, |told| self.last.max(number(told) - 1));
        let (mut store_context, mut entry) = (StoreContext::after(before), std::mem::take(&mut self.entry));
        let answer = run(
            self,
            &mut entry,
            &mut store_context.operation(&self.id.name, moment(now), &|_| Presence::Present),
        );
        self.entry = entry;
        if store_context.last_number() > before {
            self.last = store_context.last_number();
        }
        answer
    }

    fn place(&self, index: usize) -> Place<'_> {
        let (owner, ticket) = &self.owners[index];
        let mut place = Place::new(&self.id, owner, RequestId::new(index as u64));
        (place.ttl, place.ticket) = (self.ttl, *ticket);
        place
    }
}

/// The number of the lock for a recorded one.
pub(super) fn number(told: u64) -> u64 {
    BASE.saturating_add(told.saturating_mul(ROOM))
}

/// In whole milliseconds, as a server counts.
fn moment(ns: u64) -> Duration {
    Duration::from_millis(ns / MS)
}

fn millis(time: Duration) -> Millis {
    u64::try_from(time.as_millis()).unwrap_or(Millis::MAX)
}
