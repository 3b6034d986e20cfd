//! All locks, their holders and lines, and the rules. Pure code: the caller passes the time.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, ForceReleased, Hold, HoldCountSet, Holder, LockId, LockState, Place, Released, Renew,
    Renewal, RequestId, Wait, Waiter, Withdrawn,
};
use fairlock_core::{FencingToken, OwnerId};

/// One moment of the store. Times are milliseconds since 1970.
pub(crate) struct Table {
    pub(crate) now: Duration,
    /// The last number used: tickets and tokens share one sequence.
    pub(crate) last: u64,
    pub(crate) locks: BTreeMap<String, Entry>,
    /// The wake-ups to send when the step is done.
    pub(crate) wake_ups: Vec<WakeUp>,
}

/// One lock. Fair and plain handles are treated alike, since a plain lock has no order to keep.
#[derive(Default)]
pub(crate) struct Entry {
    pub(crate) holder: Option<Kept>,
    pub(crate) line: Vec<Kept>,
}

/// A hold, or a place: one request in either case.
pub(crate) struct Kept {
    pub(crate) owner: OwnerId,
    pub(crate) request: RequestId,
    /// The token of a hold, the ticket of a place.
    pub(crate) number: u64,
    pub(crate) holds: u32,
    /// The end of the lease, or the time when the place counts as abandoned.
    pub(crate) ends: u64,
    pub(crate) lease: u64,
    pub(crate) label: String,
}

/// A wake-up: a request was granted, or (without a request) a hold was taken away.
pub(crate) struct WakeUp {
    pub(crate) lock: String,
    pub(crate) owner: OwnerId,
    pub(crate) granted: Option<RequestId>,
    pub(crate) token: FencingToken,
}

impl Table {
    pub(crate) fn acquire(&mut self, ask: &Acquire<'_>) -> Acquired {
        let place = &ask.place;
        if !self.refresh(place, ask.lease) {
            self.restore(ask);
        }
        self.settle();
        let (number, now) = (self.next_number(), self.millis());
        let entry = self.entry(place.lock);
        if let Some(holder) = &entry.holder {
            if holder.is(place.owner, place.request) {
                return Acquired::Granted { token: holder.token(), lease: holder.left(now) }; // a repeat
            }
        } else {
            // There is no waiter: it would have been granted the free lock.
            let holder = Kept::new(place, ask.label, number, ask.lease, now + millis(ask.lease));
            let token = holder.token();
            entry.holder = Some(holder);
            return Acquired::Granted { token, lease: ask.lease };
        }
        if place.wait == Wait::No {
            entry.remove(place);
            return Acquired::Busy { recheck_in: entry.left(now) };
        }
        if entry.rank(place).is_none() {
            entry.line.push(Kept::new(place, ask.label, number, ask.lease, now + millis(place.ttl)));
        }
        entry.queued(place, now, number)
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

    pub(crate) fn release(&mut self, hold: &Hold<'_>, again: Option<&Acquire<'_>>) -> Released {
        if let Some(ask) = again {
            self.refresh(&ask.place, ask.lease);
        }
        self.settle();
        let (number, now) = (self.next_number(), self.millis());
        let entry = self.entry(hold.lock);
        let answer = match again {
            _ if entry.held_as(hold).is_none() => {
                // A late repeat of its request may have come here after the hold ended.
                entry.line.retain(|kept| !kept.is(hold.owner, hold.request));
                match again.filter(|ask| entry.knows(&ask.place)) {
                    Some(ask) => entry.released_again(&ask.place, now, number), // a repeat
                    None => Released::NotHeld,
                }
            }
            None => {
                entry.holder = None;
                Released::Released
            }
            Some(_) if entry.line.is_empty() => Released::Kept,
            Some(ask) => {
                entry.holder = None;
                let place = &ask.place;
                entry.line.push(Kept::new(place, ask.label, number, ask.lease, now + millis(place.ttl)));
                entry.released_again(place, now, number)
            }
        };
        self.settle();
        answer
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

    pub(crate) fn force_release(&mut self, lock: &LockId) -> ForceReleased {
        // A hold that has just expired has no holder: the next one must not lose the lock for it.
        let now = self.millis();
        let Some(holder) = self.entry(lock).holder.take_if(|holder| holder.ends > now) else {
            self.settle();
            return ForceReleased::NotHeld;
        };
        let (name, token) = (lock.name.as_str().to_owned(), holder.token());
        self.wake_ups.push(WakeUp { lock: name, owner: holder.owner, granted: None, token });
        self.settle();
        ForceReleased::Taken
    }

    pub(crate) fn inspect(&mut self, lock: &LockId, part: Range<u64>) -> LockState {
        self.settle();
        let now = self.millis();
        let entry = self.entry(lock);
        let mut state = LockState::default();
        state.holder = entry.holder.as_ref().map(|kept| {
            let mut holder = Holder::new(kept.owner.clone(), kept.holds);
            (holder.token, holder.lease_left) = (Some(kept.token()), Some(kept.left(now)));
            holder.label = Some(kept.label.clone());
            holder
        });
        state.line_length = entry.line.len() as u64;
        let asked_for = (0_u64..).zip(&entry.line).filter(|(rank, _)| part.contains(rank));
        let waiters = asked_for.map(|(_, kept)| {
            let mut waiter = Waiter::new(kept.owner.clone());
            (waiter.request, waiter.place_left) = (Some(kept.request), Some(kept.left(now)));
            waiter.label = Some(kept.label.clone());
            waiter
        });
        state.line = waiters.collect();
        state
    }

    /// The core of the rules: expired leases and abandoned places end, and a free lock goes to the first in its line.
    /// It runs at each step for all locks, so that nothing of dead clients stays.
    fn settle(&mut self) {
        let now = self.millis();
        let mut locks = std::mem::take(&mut self.locks);
        for (lock, entry) in &mut locks {
            entry.holder.take_if(|holder| holder.ends <= now);
            entry.line.retain(|place| place.ends > now);
            if entry.holder.is_none() && !entry.line.is_empty() {
                let mut next = entry.line.remove(0);
                next.number = self.next_number();
                // The grant lasts for the rest of the place. So the waiter knows its validity without asking, and the
                // grant of a dead waiter ends with its place.
                next.ends = next.ends.min(now + next.lease);
                let (owner, token) = (next.owner.clone(), next.token());
                self.wake_ups.push(WakeUp { lock: lock.clone(), owner, granted: Some(next.request), token });
                entry.holder = Some(next);
            }
        }
        locks.retain(|_, entry| entry.holder.is_some() || !entry.line.is_empty());
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

impl Entry {
    fn rank(&self, place: &Place<'_>) -> Option<usize> {
        self.line.iter().position(|kept| kept.is(place.owner, place.request))
    }

    fn held_by(&self, place: &Place<'_>) -> Option<&Kept> {
        self.holder.as_ref().filter(|holder| holder.is(place.owner, place.request))
    }

    fn held_as(&mut self, hold: &Hold<'_>) -> Option<&mut Kept> {
        let is_it = |kept: &&mut Kept| kept.is(hold.owner, hold.request) && kept.token() == hold.token;
        self.holder.as_mut().filter(is_it)
    }

    fn knows(&self, place: &Place<'_>) -> bool {
        self.held_by(place).is_some() || self.rank(place).is_some()
    }

    fn remove(&mut self, place: &Place<'_>) {
        self.line.retain(|kept| !kept.is(place.owner, place.request));
    }

    fn left(&self, now: u64) -> Duration {
        self.holder.as_ref().map_or(Duration::ZERO, |holder| holder.left(now))
    }

    /// The first in line asks again when the hold would end. The others get a message, or find out by their
    /// heartbeats.
    fn rank_and_recheck_in(&self, place: &Place<'_>, now: u64) -> (u64, Duration) {
        let rank = self.rank(place).unwrap_or(0);
        let recheck_in = if rank == 0 { self.left(now) + Duration::from_millis(1) } else { Duration::MAX };
        (rank as u64, recheck_in)
    }

    fn queued(&self, place: &Place<'_>, now: u64, latest: u64) -> Acquired {
        let (rank, recheck_in) = self.rank_and_recheck_in(place, now);
        let ticket = self.line.get(rank as usize).map_or(0, |kept| kept.number);
        Acquired::Queued { rank, recheck_in, ticket, latest }
    }

    /// The state of the new request in a `release` that asks for the lock again.
    fn released_again(&self, place: &Place<'_>, now: u64, latest: u64) -> Released {
        Released::Again(match self.held_by(place) {
            Some(holder) => Acquired::Granted { token: holder.token(), lease: holder.left(now) },
            None => self.queued(place, now, latest),
        })
    }
}

impl Kept {
    fn new(place: &Place<'_>, label: &str, number: u64, lease: Duration, ends: u64) -> Kept {
        let (owner, request, label) = (place.owner.clone(), place.request, label.to_owned());
        Kept { owner, request, number, holds: 1, ends, lease: millis(lease), label }
    }

    fn is(&self, owner: &OwnerId, request: RequestId) -> bool {
        self.request == request && self.owner == *owner
    }

    fn token(&self) -> FencingToken {
        FencingToken::new(self.number)
    }

    fn left(&self, now: u64) -> Duration {
        Duration::from_millis(self.ends.saturating_sub(now))
    }
}

fn millis(time: Duration) -> u64 {
    // Longer than any lease, and safe from overflow when `now` is added.
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).min(1 << 60)
}
