//! All locks by name, and the numbers that only grow. Pure: the time is given.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, ForceReleased, Hold, HoldCountSet, LockId, LockState, Place, Released, Renew, Renewal,
    Withdrawn,
};
use fairlock_core::{FencingToken, LockName};

use crate::lock_entry::LockEntry;
use crate::wake_ups::WakeUps;

/// A moment: the time since the store was made.
pub(crate) type Moment = Duration;

/// For how much longer than its time to live a waiter can be silent and still come back to its place.
pub(crate) const FORGET_AFTER: Duration = Duration::from_secs(60);

/// How many locks there can be before empty entries go at once, and the store looks for abandoned ones.
const FEW_LOCKS: usize = 1024;

/// Tokens follow the wall clock up to here (the year 2112), and from here on only count, to stay below 2^53.
const LAST_BY_CLOCK: u64 = 1 << 52;

/// Mints the tokens of all locks: microseconds of the wall clock, as Redis backends do, but always growing.
pub(crate) struct Tokens {
    last: u64,
    made_at_micros: u64,
}

impl Tokens {
    fn mint(&mut self, now: Moment) -> FencingToken {
        let elapsed = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        let by_clock = self.made_at_micros.saturating_add(elapsed).min(LAST_BY_CLOCK);
        self.last = by_clock.max(self.last + 1);
        FencingToken::new(self.last)
    }
}

/// What an operation on one lock needs beside that lock.
pub(crate) struct Turn<'a> {
    pub(crate) lock: &'a LockName,
    pub(crate) now: Moment,
    /// The number of the call: who spoke in it hears of a grant by the answer.
    pub(crate) call: u64,
    pub(crate) wake_ups: &'a mut WakeUps,
    tokens: &'a mut Tokens,
    label: &'a mut Arc<str>,
}

impl Turn<'_> {
    pub(crate) fn mint(&mut self) -> FencingToken {
        self.tokens.mint(self.now)
    }

    /// The latest number that was drawn.
    pub(crate) fn latest(&self) -> u64 {
        self.tokens.last
    }

    /// The text to be kept: the latest one's if it is the same, as it is where one client asks again and again.
    pub(crate) fn label(&mut self, text: &str) -> Arc<str> {
        if **self.label != *text {
            *self.label = text.into();
        }
        Arc::clone(self.label)
    }
}

/// The locks that somebody holds or waits for, and some that were: they come back, and an empty entry is like none.
pub(crate) struct Store {
    locks: HashMap<LockName, LockEntry>,
    tokens: Tokens,
    pub(crate) wake_ups: WakeUps,
    calls: u64,
    /// With more locks than this, the abandoned ones are looked for.
    sweep_above: usize,
    /// The label of the latest grant.
    label: Arc<str>,
}

impl Store {
    /// `made_at`: the wall clock now, since 1970.
    pub(crate) fn new(made_at: Duration) -> Store {
        let made_at_micros = u64::try_from(made_at.as_micros()).unwrap_or(u64::MAX);
        Store {
            locks: HashMap::new(),
            tokens: Tokens { last: 0, made_at_micros },
            wake_ups: WakeUps::default(),
            calls: 0,
            sweep_above: FEW_LOCKS,
            label: Arc::default(),
        }
    }

    pub(crate) fn acquire(&mut self, now: Moment, ask: &Acquire<'_>) -> Acquired {
        self.calls += 1;
        self.with(now, &ask.place.lock.name, |entry, turn| entry.acquire(turn, ask))
    }

    pub(crate) fn set_hold_count(&mut self, now: Moment, hold: &Hold<'_>, holds: u32) -> HoldCountSet {
        self.calls += 1;
        self.with(now, &hold.lock.name, |entry, turn| entry.set_hold_count(turn, hold, holds))
    }

    pub(crate) fn release(&mut self, now: Moment, hold: &Hold<'_>, again: Option<&Acquire<'_>>) -> Released {
        self.calls += 1;
        self.with(now, &hold.lock.name, |entry, turn| entry.release(turn, hold, again))
    }

    /// Hears all items before it answers any: a lock that is found free goes to the first of *all* the waiters
    /// who speak in this call, not to the first of whom the call speaks.
    pub(crate) fn renew(&mut self, now: Moment, items: &[Renew<'_>]) -> Vec<Renewal> {
        self.calls += 1;
        for item in items {
            self.with(now, &lock_of(item).name, |entry, turn| entry.hear(turn, item));
        }
        let answer = |item| self.with(now, &lock_of(item).name, |entry, turn| entry.answer(turn, item));
        items.iter().map(answer).collect()
    }

    pub(crate) fn withdraw(&mut self, now: Moment, place: &Place<'_>) -> Withdrawn {
        self.calls += 1;
        self.with(now, &place.lock.name, |entry, turn| entry.withdraw(turn, place))
    }

    pub(crate) fn kick(&mut self, now: Moment, place: &Place<'_>) -> Withdrawn {
        self.calls += 1;
        self.with(now, &place.lock.name, |entry, turn| entry.kick(turn, place))
    }

    pub(crate) fn force_release(&mut self, now: Moment, lock: &LockId) -> ForceReleased {
        self.calls += 1;
        self.with(now, &lock.name, LockEntry::force_release)
    }

    /// Changes nothing, not even what is overdue.
    pub(crate) fn inspect(&self, now: Moment, lock: &LockId, part: Range<u64>) -> LockState {
        self.locks.get(&lock.name).map(|entry| entry.inspect(now, part)).unwrap_or_default()
    }

    /// The places vanish, and nobody is told.
    pub(crate) fn lose_line(&mut self, now: Moment, lock: &LockName) {
        self.calls += 1;
        self.with(now, lock, |entry, _| entry.lose_line());
    }

    /// The hold vanishes, and nobody is told.
    pub(crate) fn lose_hold(&mut self, now: Moment, lock: &LockName) {
        self.calls += 1;
        self.with(now, lock, |entry, _| entry.lose_hold());
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.locks.values().all(LockEntry::is_empty)
    }

    /// Does something with a lock. A lock that nobody knows is an empty entry; where there are many locks it is not kept.
    fn with<T>(
        &mut self,
        now: Moment,
        lock: &LockName,
        operate: impl FnOnce(&mut LockEntry, &mut Turn<'_>) -> T,
    ) -> T {
        let Store { locks, tokens, wake_ups, calls, sweep_above, label } = self;
        let mut turn = Turn { lock, now, call: *calls, wake_ups, tokens, label };
        if let Some(entry) = locks.get_mut(lock) {
            let answer = operate(entry, &mut turn);
            if entry.is_empty() && locks.len() > FEW_LOCKS {
                locks.remove(lock);
            }
            return answer;
        }
        let mut entry = LockEntry::default();
        let answer = operate(&mut entry, &mut turn);
        if !entry.is_empty() {
            locks.insert(lock.clone(), entry);
            if locks.len() > *sweep_above {
                // An entry is looked at only when somebody asks for its lock. Holders and waiters who are gone,
                // of locks that nobody wants any more, would stay for ever: Redis has TTLs, we have this.
                locks.retain(|_, entry| !entry.is_abandoned(now));
                *sweep_above = FEW_LOCKS.max(locks.len() * 2);
            }
        }
        answer
    }
}

fn lock_of<'a>(item: &Renew<'a>) -> &'a LockId {
    match item {
        Renew::Hold { hold, .. } => hold.lock,
        Renew::Place { place, .. } => place.lock,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlock_core::backend::RequestId;
    use fairlock_core::{LockKind, OwnerId};

    #[test]
    fn tokens_follow_the_wall_clock_and_grow_even_when_it_stands_still() {
        let mut tokens = Tokens { last: 0, made_at_micros: 1_000 };
        let mut mint = |micros| tokens.mint(Duration::from_micros(micros)).get();
        assert_eq!([mint(0), mint(0), mint(0), mint(500)], [1_000, 1_001, 1_002, 1_500]);
        assert_eq!([mint(u64::MAX), mint(u64::MAX)], [1 << 52, (1 << 52) + 1]);
    }

    #[test]
    fn locks_that_their_holders_abandoned_do_not_pile_up() {
        let mut store = Store::new(Duration::ZERO);
        let owner = OwnerId::new("c:1");
        for number in 0..10_000 {
            let lock = LockId::new(LockName::new(&number.to_string()).unwrap(), LockKind::Fair);
            let place = Place::new(&lock, &owner, RequestId::new(number));
            store.acquire(Duration::from_secs(number), &Acquire::new(place, Duration::from_secs(30)));
        }
        assert!(store.locks.len() <= FEW_LOCKS + 1, "{}", store.locks.len());
    }
}
