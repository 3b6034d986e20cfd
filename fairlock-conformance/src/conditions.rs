//! Asks with a condition: the lock once in a period, and with few requests ahead. These cases call the backend itself.

use std::time::Duration;

use fairlock_core::FencingToken;
use fairlock_core::OwnerId;
use fairlock_core::backend::{
    Acquire, Acquired, Condition, Declined, Released, Since, Wait, Withdrawn, only,
};

use super::shared::benches;
use super::{Harness, LEASE, Promise};
use crate::requests::Bench;

const PERIOD: Duration = Duration::from_secs(20);

/// Asks under this condition, for all units.
fn ask_if(bench: &Bench, owner: &OwnerId, wait: Wait, condition: Condition) -> Acquired {
    let mut ask = Acquire::new(bench.place(owner, 1), LEASE);
    (ask.place.wait, ask.condition) = (wait, condition);
    only(bench.backend.acquire(&[ask])).unwrap()
}

fn ask_since(bench: &Bench, owner: &OwnerId, since: Since) -> Acquired {
    let mut condition = Condition::default();
    condition.not_granted = Some(since);
    ask_if(bench, owner, Wait::No, condition)
}

fn ask_once(bench: &Bench, owner: &OwnerId) -> Acquired {
    ask_since(bench, owner, Since::PeriodBegan(PERIOD))
}

fn ask_behind(bench: &Bench, owner: &OwnerId, most: u64) -> Acquired {
    let mut condition = Condition::default();
    condition.most_ahead = Some(most);
    ask_if(bench, owner, Wait::Forever, condition)
}

#[track_caller]
fn token_of(answer: Acquired) -> FencingToken {
    let Acquired::Granted { token, .. } = answer else { panic!("{answer:?}") };
    token
}

#[track_caller]
fn granted_at(answer: Acquired) -> Duration {
    let Acquired::Declined(Declined::Granted(time)) = answer else { panic!("{answer:?}") };
    time
}

#[track_caller]
fn release(bench: &Bench, owner: &OwnerId, token: FencingToken) {
    assert_eq!(bench.release(owner, 1, token), Released::Released);
}

/// Periods begin at multiples of their length since 1970, by the store's clock.
pub fn a_lock_is_granted_once_in_a_period(harness: &impl Harness) {
    let mut kinds = benches(harness, "once");
    kinds.push(Bench::new(harness, "once"));
    for bench in kinds {
        let (one, other) = (bench.owner(), bench.owner());
        let token = token_of(ask_once(&bench, &one));
        assert!(matches!(ask_once(&bench, &other), Acquired::Declined(_)), "rather than busy");
        release(&bench, &one, token);
        let granted = granted_at(ask_once(&bench, &other));
        let into = Duration::from_nanos((granted.as_nanos() % PERIOD.as_nanos()) as u64);
        let margin = (PERIOD - into).min(Duration::from_millis(100));
        harness.pass(PERIOD - into - margin);
        assert_eq!(granted_at(ask_once(&bench, &other)), granted);
        harness.pass(margin * 2); // a store may count whole milliseconds
        let next = token_of(ask_once(&bench, &other));
        assert!(next > token);
        release(&bench, &other, next);
        assert!(granted_at(ask_once(&bench, &one)) >= granted + PERIOD - into);
        harness.pass(PERIOD);
        release(&bench, &one, token_of(ask_once(&bench, &one)));
    }
}

/// However periods lie.
pub fn a_lock_is_granted_again_a_time_after_its_last_grant(harness: &impl Harness) {
    let bench = Bench::new(harness, "ago");
    let (one, other, since) = (bench.owner(), bench.owner(), Since::Ago(PERIOD));
    release(&bench, &one, token_of(ask_since(&bench, &one, since)));
    harness.pass(PERIOD - Duration::from_millis(100));
    granted_at(ask_since(&bench, &other, since));
    harness.pass(Duration::from_millis(200));
    release(&bench, &other, token_of(ask_since(&bench, &other, since)));
    granted_at(ask_since(&bench, &one, since));
}

/// The first ask makes the store note each grant, even if the ask finds the lock taken.
pub fn from_the_first_ask_for_a_period_on_any_grant_counts(harness: &impl Harness) {
    let bench = Bench::new(harness, "noted");
    let [holder, next, asker] = [(); 3].map(|()| bench.owner());
    release(&bench, &holder, bench.token(&holder, 1));
    let token = bench.token(&holder, 1);
    assert!(matches!(ask_once(&bench, &asker), Acquired::Busy { .. }), "no grant was noted before");
    let waits = bench.ask(&next, 1);
    assert!(matches!(waits, Acquired::Queued { .. } | Acquired::Busy { .. }), "{waits:?}");
    release(&bench, &holder, token);
    // By hand-off the release has granted it.
    let token = bench.token(&next, 1);
    granted_at(ask_once(&bench, &asker));
    release(&bench, &next, token);
    harness.pass(PERIOD);
    token_of(ask_once(&bench, &asker));
}

/// The store keeps its word on that for two periods at least, whatever else becomes of the lock.
pub fn a_noted_grant_outlasts_other_uses_of_the_lock(harness: &impl Harness) {
    let bench = Bench::new(harness, "long");
    let (one, other, long) =
        (bench.owner(), bench.owner(), Since::Ago(Duration::from_secs(31 * 24 * 60 * 60)));
    release(&bench, &one, token_of(ask_since(&bench, &one, long)));
    for _ in 0..2 {
        let token = bench.token(&other, 1);
        let waits = bench.ask(&one, 1);
        assert!(matches!(waits, Acquired::Queued { .. } | Acquired::Busy { .. }), "{waits:?}");
        assert_eq!(only(bench.backend.withdraw(&[bench.place(&one, 1)])).unwrap(), Withdrawn::Left);
        release(&bench, &other, token);
        bench.token(&other, 1);
        bench.backend.force_release(&bench.lock).unwrap();
        harness.pass(PERIOD);
    }
    granted_at(ask_since(&bench, &one, long));
}

/// The first answer may have been lost: a repeat is not declined for its own grant.
pub fn a_repeat_of_the_granted_ask_keeps_its_hold(harness: &impl Harness) {
    let bench = Bench::new(harness, "again");
    let owner = bench.owner();
    let token = token_of(ask_once(&bench, &owner));
    harness.pass(PERIOD / 2);
    assert_eq!(token_of(ask_once(&bench, &owner)), token);
    release(&bench, &owner, token);
    let late = ask_once(&bench, &owner);
    assert!(matches!(late, Acquired::Declined(_) | Acquired::Granted { .. }), "{late:?}");
}

/// It neither holds the lock nor waits for it.
pub fn a_declined_request_leaves_nothing(harness: &impl Harness) {
    let bench = Bench::new(harness, "declined");
    let (one, other) = (bench.owner(), bench.owner());
    release(&bench, &one, token_of(ask_once(&bench, &one)));
    granted_at(ask_once(&bench, &other));
    assert_eq!(only(bench.backend.withdraw(&[bench.place(&other, 1)])).unwrap(), Withdrawn::Left);
    let state = bench.backend.inspect(&bench.lock, 0..1).unwrap();
    assert!(state.holders.is_empty() && state.queue_length == 0, "{state:?}");
    release(&bench, &one, bench.token(&one, 1));
}

/// It gets no place. A request that has a place keeps it.
pub fn a_newcomer_with_too_many_ahead_is_declined(harness: &impl Harness) {
    let bench = Bench::new(harness, "ahead");
    let [holder, first, second, third] = [(); 4].map(|()| bench.owner());
    let token = token_of(ask_behind(&bench, &holder, 0));
    if !harness.promises(Promise::Order) {
        for owner in [&first, &second] {
            assert!(matches!(ask_behind(&bench, owner, 0), Acquired::Busy { .. }), "it has no queue");
            assert_eq!(only(bench.backend.withdraw(&[bench.place(owner, 1)])).unwrap(), Withdrawn::Left);
        }
        return release(&bench, &holder, token);
    }
    assert!(matches!(ask_behind(&bench, &first, 0), Acquired::Queued { rank: 0, .. }));
    assert_eq!(ask_behind(&bench, &second, 0), Acquired::Declined(Declined::Ahead(1)));
    assert!(matches!(ask_behind(&bench, &second, 1), Acquired::Queued { rank: 1, .. }));
    assert_eq!(ask_behind(&bench, &third, 1), Acquired::Declined(Declined::Ahead(2)));
    assert!(matches!(ask_behind(&bench, &second, 0), Acquired::Queued { rank: 1, .. }));
    assert_eq!(bench.queue(), 2);
    for owner in [&first, &second, &third] {
        assert_eq!(only(bench.backend.withdraw(&[bench.place(owner, 1)])).unwrap(), Withdrawn::Left);
    }
    release(&bench, &holder, token);
    harness.assert_nothing_is_left("ahead");
}
