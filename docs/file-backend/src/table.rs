//! All locks, their holders and lines, and the rules. Pure code: the caller passes the time.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::str::{FromStr, Split};
use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, ForceReleased, Hold, HoldCountSet, Holder, LockId, LockState, Place, Released, Renew,
    Renewal, RequestId, Wait, Waiter, Withdrawn,
};
use fairlock_core::{FencingToken, OwnerId};

/// One moment of the store. Times are milliseconds since 1970.
pub(crate) struct Table {
    now: Duration,
    /// The last number used: tickets and tokens share one sequence.
    last: u64,
    locks: BTreeMap<String, Entry>,
    /// The messages to send when the step is done.
    pub(crate) told: Vec<Told>,
}

/// One lock. Fair and plain handles are treated alike, since a plain lock has no order to keep.
#[derive(Default)]
struct Entry {
    holder: Option<Kept>,
    line: Vec<Kept>,
}

/// A hold, or a place: one request in either case.
struct Kept {
    owner: OwnerId,
    request: RequestId,
    /// The token of a hold, the ticket of a place.
    number: u64,
    holds: u32,
    /// The end of the lease, or the time when the place counts as abandoned.
    ends: u64,
    lease: u64,
    label: String,
}

/// A wake-up: a request was granted, or (without a request) a hold was taken away.
pub(crate) struct Told {
    pub(crate) lock: String,
    pub(crate) owner: OwnerId,
    pub(crate) granted: Option<RequestId>,
    pub(crate) token: FencingToken,
}

impl Table {
    pub(crate) fn acquire(&mut self, ask: &Acquire<'_>) -> Acquired {
        let place = &ask.place;
        if !self.hear(place, ask.lease) {
            self.put_back(ask);
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
            entry.leave(place);
            return Acquired::Busy { recheck_in: entry.left(now) };
        }
        if entry.rank(place).is_none() {
            entry.line.push(Kept::new(place, ask.label, number, ask.lease, now + millis(place.ttl)));
        }
        entry.queued(place, now, number)
    }

    /// A waiter whose place is gone is back where its ticket says: overdue, or granted the lock while it stood still. Not
    /// where a ticket can't be of this store: newcomers would stand before it.
    fn put_back(&mut self, ask: &Acquire<'_>) {
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
            self.hear(&ask.place, ask.lease);
        }
        self.settle();
        let (number, now) = (self.next_number(), self.millis());
        let entry = self.entry(hold.lock);
        let answer = match again {
            _ if entry.held_as(hold).is_none() => {
                // A late repeat of its request may have come here after the hold ended.
                entry.line.retain(|kept| !kept.is(hold.owner, hold.request));
                match again.filter(|ask| entry.knows(&ask.place)) {
                    Some(ask) => entry.stands(&ask.place, now, number), // a repeat
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
                entry.stands(place, now, number)
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
                Renew::Place { place, lease } => _ = self.hear(place, *lease),
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
                let (rank, recheck_in) = entry.rank_and_look(place, now);
                Renewal::Waiting { rank, recheck_in, latest }
            }
        }
    }

    pub(crate) fn withdraw(&mut self, place: &Place<'_>) -> Withdrawn {
        // Before the decision: a free lock must not go to the leaving request.
        self.entry(place.lock).leave(place);
        self.settle();
        let now = self.millis();
        match self.entry(place.lock).held_by(place) {
            Some(holder) => Withdrawn::WasGranted { token: holder.token(), lease: holder.left(now) },
            None => Withdrawn::Left,
        }
    }

    /// To the tail at once: what has a place there is not put back elsewhere.
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
        self.told.push(Told { lock: name, owner: holder.owner, granted: None, token });
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
                self.told.push(Told { lock: lock.clone(), owner, granted: Some(next.request), token });
                entry.holder = Some(next);
            }
        }
        locks.retain(|_, entry| entry.holder.is_some() || !entry.line.is_empty());
        self.locks = locks;
    }

    /// A heartbeat for the place, if it is there.
    fn hear(&mut self, place: &Place<'_>, lease: Duration) -> bool {
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

    /// The inverse of `to_string`; `None` if the text is not ours.
    pub(crate) fn parse(text: &str, now: Duration) -> Option<Table> {
        let mut table = Table { now, last: 0, locks: BTreeMap::new(), told: Vec::new() };
        let mut lines = text.lines();
        table.last = lines.next().map_or(Some(0), |last| last.parse().ok())?;
        for line in lines {
            let mut fields = Fields(line.split(' '));
            let what = fields.0.next()?;
            let entry = table.locks.entry(fields.text()?).or_default();
            let kept = Kept {
                owner: OwnerId::new(&fields.text()?),
                request: RequestId::new(fields.number()?),
                number: fields.number()?,
                holds: fields.number()?,
                ends: fields.number()?,
                lease: fields.number()?,
                label: fields.text()?,
            };
            match what {
                "hold" => entry.holder = Some(kept),
                "place" => entry.line.push(kept),
                _ => return None,
            }
        }
        Some(table)
    }
}

impl fmt::Display for Table {
    /// The last number, then a line per hold and place; places in the order of the line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.last)?;
        for (lock, entry) in &self.locks {
            let holder = entry.holder.iter().map(|kept| ("hold", kept));
            for (what, kept) in holder.chain(entry.line.iter().map(|kept| ("place", kept))) {
                let (lock, owner, label) = (Hex(lock), Hex(kept.owner.as_str()), Hex(&kept.label));
                let Kept { request, number, holds, ends, lease, .. } = kept;
                let request = request.get();
                writeln!(f, "{what} {lock} {owner} {request} {number} {holds} {ends} {lease} {label}")?;
            }
        }
        Ok(())
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

    fn leave(&mut self, place: &Place<'_>) {
        self.line.retain(|kept| !kept.is(place.owner, place.request));
    }

    fn left(&self, now: u64) -> Duration {
        self.holder.as_ref().map_or(Duration::ZERO, |holder| holder.left(now))
    }

    /// The first in line asks again when the hold would end. The others get a message, or find out by their
    /// heartbeats.
    fn rank_and_look(&self, place: &Place<'_>, now: u64) -> (u64, Duration) {
        let rank = self.rank(place).unwrap_or(0);
        let look = if rank == 0 { self.left(now) + Duration::from_millis(1) } else { Duration::MAX };
        (rank as u64, look)
    }

    fn queued(&self, place: &Place<'_>, now: u64, latest: u64) -> Acquired {
        let (rank, recheck_in) = self.rank_and_look(place, now);
        let ticket = self.line.get(rank as usize).map_or(0, |kept| kept.number);
        Acquired::Queued { rank, recheck_in, ticket, latest }
    }

    /// The state of the new request in a `release` that asks for the lock again.
    fn stands(&self, place: &Place<'_>, now: u64, latest: u64) -> Released {
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

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let request = self.granted.map_or("-".to_owned(), |request| request.get().to_string());
        write!(f, "{} {} {request} {}", Hex(&self.lock), Hex(self.owner.as_str()), self.token.get())
    }
}

impl Told {
    pub(crate) fn parse(text: &str) -> Option<Told> {
        let mut fields = Fields(text.split(' '));
        let (lock, owner) = (fields.text()?, OwnerId::new(&fields.text()?));
        let granted = match fields.0.next()? {
            "-" => None,
            request => Some(RequestId::new(request.parse().ok()?)),
        };
        Some(Told { lock, owner, granted, token: FencingToken::new(fields.number()?) })
    }
}

/// The words of a line.
struct Fields<'a>(Split<'a, char>);

impl Fields<'_> {
    fn number<T: FromStr>(&mut self) -> Option<T> {
        self.0.next()?.parse().ok()
    }

    fn text(&mut self) -> Option<String> {
        let hex = self.0.next()?;
        let byte = |at| hex.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let bytes: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(byte).collect();
        String::from_utf8(bytes?).ok()
    }
}

/// Any text as one word: lock names may contain spaces and newlines.
struct Hex<'a>(&'a str);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.bytes().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn millis(time: Duration) -> u64 {
    // Longer than any lease, and safe from overflow when `now` is added.
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).min(1 << 60)
}
