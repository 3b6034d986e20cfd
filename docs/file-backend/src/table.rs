//! All locks, and the rules. Pure code: the caller passes the time.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, BackendError, ForceReleased, Hold, HoldCountSet, HoldKept, Holder, LockId, LockState,
    Place, Released, Renew, Renewal, RequestId, Wait, Waiter, Withdrawn,
};
use fairlock_core::{FencingToken, OwnerId};

use crate::entry::{Entry, Kept, millis};

/// One moment of the store. Times are milliseconds since 1970.
pub(crate) struct Table {
    pub(crate) now: Duration,
    /// The last number used: tickets and tokens share one sequence.
    pub(crate) last: u64,
    pub(crate) locks: BTreeMap<String, Entry>,
    /// The wake-ups to send when the step is done.
    pub(crate) wake_ups: Vec<WakeUp>,
}

/// A wake-up: a request was granted, or (without a request) a hold was taken away.
pub(crate) struct WakeUp {
    pub(crate) lock: String,
    pub(crate) owner: OwnerId,
    pub(crate) granted: Option<RequestId>,
    pub(crate) token: FencingToken,
}

impl Table {
    pub(crate) fn acquire(&mut self, ask: &Acquire<'_>) -> Result<Acquired, BackendError> {
        let place = &ask.place;
        self.check_kind(place.lock)?;
        if !self.refresh(place, ask.lease) {
            self.restore(ask);
        }
        self.settle();
        let (number, now) = (self.next_number(), self.millis());
        let entry = self.entry(place.lock);
        if let Some(holder) = entry.held_by(place) {
            return Ok(Acquired::Granted { token: holder.token(), lease: holder.left(now) }); // a repeat
        }
        if entry.line.is_empty() && entry.fits(place.takes) {
            let holder = Kept::new(place, ask.label, number, ask.lease, now + millis(ask.lease));
            let token = holder.token();
            entry.holders.push(holder);
            return Ok(Acquired::Granted { token, lease: ask.lease });
        }
        if place.wait == Wait::No {
            entry.remove(place);
            return Ok(Acquired::Busy { recheck_in: entry.left(now) });
        }
        if entry.rank(place).is_none() {
            entry.line.push(Kept::new(place, ask.label, number, ask.lease, now + millis(place.ttl)));
        }
        Ok(entry.queued(place, now, number))
    }

    /// While a name is held or waited for it has one kind.
    fn check_kind(&mut self, lock: &LockId) -> Result<(), BackendError> {
        let now = self.millis();
        let entry = self.entry(lock);
        let in_use = entry.holders.iter().chain(&entry.line).find(|kept| kept.ends > now);
        match in_use {
            Some(kept) if !kept.kind.agrees_with(lock.kind) => {
                Err(BackendError::mismatch(kept.kind.capacity(), lock.kind))
            }
            _ => Ok(()),
        }
    }

    /// Restores a place at its ticket: it was overdue, or granted the lock while its waiter was stopped. Not if this store can't
    /// have given out the ticket, which would let newcomers stand ahead of it.
    fn restore(&mut self, ask: &Acquire<'_>) {
        let (place, now, last) = (&ask.place, self.millis(), self.last);
        let entry = self.entry(place.lock);
        let holds = entry.held_by(place).is_some_and(|holder| holder.ends > now);
        if holds || place.wait == Wait::No || place.ticket == 0 || place.ticket > last {
            return;
        }
        let at = entry.line.partition_point(|kept| kept.number < place.ticket);
        let kept = Kept::new(place, ask.label, place.ticket, ask.lease, now + millis(place.ttl));
        entry.line.insert(at, kept);
    }

    pub(crate) fn set_hold_count(&mut self, hold: &Hold<'_>, holds: u32) -> HoldCountSet {
        self.settle();
        match self.entry(hold.lock).held_as(hold) {
            Some(holder) => {
                holder.holds = holds;
                HoldCountSet::Set
            }
            None => HoldCountSet::Lost,
        }
    }

    pub(crate) fn release(&mut self, hold: &Hold<'_>) -> Released {
        self.settle();
        let entry = self.entry(hold.lock);
        let answer = if entry.held_as(hold).is_some() {
            entry.end(hold);
            Released::Released
        } else {
            // A late repeat of its request may have come here after the hold ended.
            entry.line.retain(|kept| !kept.is(hold.owner, hold.request));
            Released::NotHeld
        };
        self.settle();
        answer
    }

    /// The hold becomes that of a request that nobody makes again, with an end of its own. Waiters hear of it with their heartbeats.
    pub(crate) fn keep(&mut self, hold: &Hold<'_>, keeper: RequestId, lease: Duration) -> HoldKept {
        self.settle();
        let ends = self.millis() + millis(lease);
        let entry = self.entry(hold.lock);
        if let Some(holder) = entry.held_as(hold) {
            (holder.request, holder.holds, holder.ends) = (keeper, 0, ends);
            return HoldKept::Kept;
        }
        match entry.held_as(&Hold::new(hold.lock, hold.owner, keeper, hold.token)) {
            Some(holder) => {
                holder.ends = holder.ends.min(ends); // a repeat
                HoldKept::Kept
            }
            None => HoldKept::NotHeld,
        }
    }

    /// Notes all heartbeats before it decides: a free lock goes to the first of all these waiters, not to the first
    /// item.
    pub(crate) fn renew(&mut self, items: &[Renew<'_>]) -> Vec<Renewal> {
        let now = self.millis();
        for item in items {
            match item {
                Renew::Place { place, lease } => _ = self.refresh(place, *lease),
                Renew::Hold { hold, holds, lease } => {
                    let held = self.entry(hold.lock).held_as(hold);
                    if let Some(holder) = held.filter(|holder| holder.ends > now) {
                        holder.holds = *holds;
                        holder.ends = holder.ends.max(now + millis(*lease)); // never shorter
                    }
                }
            }
        }
        self.settle();
        items.iter().map(|item| self.after_renewal(item)).collect()
    }

    fn after_renewal(&mut self, item: &Renew<'_>) -> Renewal {
        let (now, latest) = (self.millis(), self.last);
        match item {
            Renew::Hold { hold, .. } => match self.entry(hold.lock).held_as(hold) {
                Some(_) => Renewal::Renewed,
                None => Renewal::Lost,
            },
            Renew::Place { place, .. } => {
                let entry = self.entry(place.lock);
                if let Some(holder) = entry.held_by(place) {
                    return Renewal::Granted { token: holder.token(), lease: holder.left(now) };
                }
                if entry.rank(place).is_none() {
                    return Renewal::Lost;
                }
                let (rank, recheck_in) = entry.rank_and_recheck_in(place, now);
                Renewal::Waiting { rank, recheck_in, latest }
            }
        }
    }

    pub(crate) fn withdraw(&mut self, place: &Place<'_>) -> Withdrawn {
        // Before the decision: a free lock must not go to the leaving request.
        self.entry(place.lock).remove(place);
        self.settle();
        let now = self.millis();
        match self.entry(place.lock).held_by(place) {
            Some(holder) => Withdrawn::WasGranted { token: holder.token(), lease: holder.left(now) },
            None => Withdrawn::Left,
        }
    }

    /// Moves the place to the tail at once, so that it is not restored elsewhere.
    pub(crate) fn kick(&mut self, place: &Place<'_>) -> Withdrawn {
        let number = self.next_number();
        let line = &mut self.entry(place.lock).line;
        let Some(at) = line.iter().position(|kept| kept.is(place.owner, place.request)) else {
            return self.withdraw(place);
        };
        let mut kicked = line.remove(at);
        kicked.number = number;
        line.push(kicked);
        self.settle();
        Withdrawn::Left
    }

    pub(crate) fn force_release(&mut self, lock: &LockId) -> Result<ForceReleased, BackendError> {
        self.check_kind(lock)?;
        Ok(self.take(lock, |_| true))
    }

    pub(crate) fn take_hold(&mut self, hold: &Hold<'_>) -> ForceReleased {
        self.take(hold.lock, |kept| kept.is_held_as(hold))
    }

    fn take(&mut self, lock: &LockId, which: impl Fn(&Kept) -> bool) -> ForceReleased {
        // A hold that has just expired has no holder: the next one must not lose the lock for it.
        let now = self.millis();
        let taken: Vec<_> =
            self.entry(lock).holders.extract_if(.., |holder| holder.ends > now && which(holder)).collect();
        let answer = if taken.is_empty() { ForceReleased::NotHeld } else { ForceReleased::Taken };
        for holder in taken {
            let (lock, token) = (lock.name.as_str().to_owned(), holder.token());
            self.wake_ups.push(WakeUp { lock, owner: holder.owner, granted: None, token });
        }
        self.settle();
        answer
    }

    pub(crate) fn inspect(&mut self, lock: &LockId, part: Range<u64>) -> Result<LockState, BackendError> {
        self.check_kind(lock)?;
        self.settle();
        let now = self.millis();
        let entry = self.entry(lock);
        let mut state = LockState::default();
        let holders = entry.holders.iter().map(|kept| {
            let mut holder = Holder::new(kept.owner.clone(), kept.holds);
            (holder.takes, holder.request) = (kept.takes, Some(kept.request));
            (holder.token, holder.lease_left) = (Some(kept.token()), Some(kept.left(now)));
            holder.label = Some(kept.label.clone());
            holder
        });
        state.holders = holders.collect();
        let shared = entry.holders.first().filter(|kept| kept.kind.is_shared());
        state.capacity = shared.map(|kept| kept.kind.capacity());
        state.line_length = entry.line.len() as u64;
        let asked_for = (0_u64..).zip(&entry.line).filter(|(rank, _)| part.contains(rank));
        let waiters = asked_for.map(|(_, kept)| {
            let mut waiter = Waiter::new(kept.owner.clone());
            waiter.takes = kept.takes;
            (waiter.request, waiter.place_left) = (Some(kept.request), Some(kept.left(now)));
            waiter.label = Some(kept.label.clone());
            waiter
        });
        state.line = waiters.collect();
        Ok(state)
    }

    /// The core of the rules: expired leases and abandoned places end, and what is free goes to the first in the line.
    /// It runs at each step for all locks, so that nothing of dead clients stays.
    fn settle(&mut self) {
        let now = self.millis();
        let mut locks = std::mem::take(&mut self.locks);
        for (lock, entry) in &mut locks {
            entry.holders.retain(|holder| holder.ends > now);
            entry.line.retain(|place| place.ends > now);
            // All that fit now, up to the first that does not: none passes it.
            while entry.line.first().is_some_and(|first| entry.fits(first.takes)) {
                let mut next = entry.line.remove(0);
                next.number = self.next_number();
                // The grant lasts for the rest of the place. So the waiter knows its validity without asking, and the
                // grant of a dead waiter ends with its place.
                next.ends = next.ends.min(now + next.lease);
                let (owner, token) = (next.owner.clone(), next.token());
                self.wake_ups.push(WakeUp { lock: lock.clone(), owner, granted: Some(next.request), token });
                entry.holders.push(next);
            }
        }
        locks.retain(|_, entry| !entry.holders.is_empty() || !entry.line.is_empty());
        self.locks = locks;
    }

    /// A heartbeat for the place, if it is there.
    fn refresh(&mut self, place: &Place<'_>, lease: Duration) -> bool {
        let now = self.millis();
        let places = &mut self.entry(place.lock).line;
        let kept = places.iter_mut().find(|kept| kept.is(place.owner, place.request));
        kept.is_some_and(|kept| {
            (kept.ends, kept.lease) = (now + millis(place.ttl), millis(lease));
            true
        })
    }

    /// Always grows, even if the file was deleted.
    fn next_number(&mut self) -> u64 {
        let micros = u64::try_from(self.now.as_micros()).unwrap_or(0);
        self.last = micros.max(self.last + 1);
        self.last
    }

    fn entry(&mut self, lock: &LockId) -> &mut Entry {
        self.locks.entry(lock.name.as_str().to_owned()).or_default()
    }

    fn millis(&self) -> u64 {
        millis(self.now)
    }

    #[cfg(test)]
    pub(crate) fn lose_hold(&mut self, lock: &str) {
        self.locks.remove(lock);
    }
}
