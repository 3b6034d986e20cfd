//! Tests of the note, and of what a condition declines.

use std::time::Duration;

use fairlock_core::backend::{Acquire, Acquired, Declined, Hold, LockId, Place, RequestId, Since, Wait};
use fairlock_core::{FencingToken, LockKind, LockName, OwnerId};

use super::*;
use crate::context::{Presence, StoreContext};

const LEASE: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3600);

/// A lock in the store's time, which a test moves.
struct Fixture {
    lock: LockId,
    entry: LockEntry,
    store_context: StoreContext,
    now: Duration,
    /// For a store with another clock.
    since_1970: Option<Duration>,
}

impl Fixture {
    /// Half an hour after an hour began.
    fn new(kind: LockKind) -> Fixture {
        Fixture {
            lock: LockId::new(LockName::new("x").unwrap(), kind),
            entry: LockEntry::default(),
            store_context: StoreContext::default(),
            now: 1000 * HOUR + HOUR / 2,
            since_1970: None,
        }
    }

    fn ask(&mut self, owner: &str, wait: Wait, condition: impl Fn(&mut Acquire<'_>)) -> Acquired {
        self.ask_after(owner, wait, condition, "no client").unwrap()
    }

    /// The same, after the client `gone` has ended.
    fn ask_after(
        &mut self,
        owner: &str,
        wait: Wait,
        condition: impl Fn(&mut Acquire<'_>),
        gone: &str,
    ) -> Result<Acquired, BackendError> {
        let owner = OwnerId::new(owner);
        let mut place = Place::new(&self.lock, &owner, RequestId::new(1));
        place.wait = wait;
        let mut ask = Acquire::new(place, LEASE);
        condition(&mut ask);
        let presence =
            |owner: &OwnerId| if owner.client() == gone { Presence::Gone } else { Presence::Present };
        let mut context = self.store_context.operation(&self.lock.name, self.now, &presence);
        if let Some(since_1970) = self.since_1970 {
            context = context.at_wall_clock(since_1970);
        }
        self.entry.acquire(&mut context, &ask)
    }

    fn every(&mut self, owner: &str, period: Duration) -> Acquired {
        self.ask(owner, Wait::No, |ask| ask.condition.not_granted = Some(Since::PeriodBegan(period)))
    }

    fn not_within(&mut self, owner: &str, time: Duration) -> Acquired {
        self.ask(owner, Wait::No, |ask| ask.condition.not_granted = Some(Since::Ago(time)))
    }

    fn at_most(&mut self, owner: &str, most: u64) -> Acquired {
        self.ask(owner, Wait::Forever, |ask| ask.condition.most_ahead = Some(most))
    }

    fn release(&mut self, owner: &str, token: FencingToken) {
        let owner = OwnerId::new(owner);
        let mut context = self.store_context.operation(&self.lock.name, self.now, &|_| Presence::Present);
        self.entry.release(&mut context, &Hold::new(&self.lock, &owner, RequestId::new(1), token));
    }
}

fn token_of(answer: Acquired) -> FencingToken {
    let Acquired::Granted { token, .. } = answer else { panic!("{answer:?}") };
    token
}

fn declined(token: FencingToken) -> Acquired {
    Acquired::Declined(Declined::Granted(Duration::from_micros(token.get())))
}

#[test]
fn a_lock_is_granted_once_in_a_period() {
    for kind in [LockKind::Fair, LockKind::Plain, LockKind::ReadWrite, LockKind::Semaphore { permits: 3 }] {
        let mut fixture = Fixture::new(kind);
        let token = token_of(fixture.every("a:1", HOUR));
        assert_eq!(token_of(fixture.every("a:1", HOUR)), token, "a repeat");
        fixture.release("a:1", token);
        assert_eq!(fixture.every("b:1", HOUR), declined(token));
        fixture.now += HOUR / 2 - Duration::from_micros(1);
        assert_eq!(fixture.every("b:1", HOUR), declined(token));
        fixture.now += Duration::from_micros(1);
        token_of(fixture.every("b:1", HOUR));
    }
}

#[test]
fn a_lock_is_granted_again_a_time_after_its_last_grant() {
    let mut fixture = Fixture::new(LockKind::Fair);
    let token = token_of(fixture.not_within("a:1", HOUR));
    fixture.release("a:1", token);
    fixture.now += HOUR;
    assert_eq!(fixture.not_within("b:1", HOUR), declined(token));
    fixture.now += Duration::from_micros(1);
    token_of(fixture.not_within("b:1", HOUR));
}

/// Times have nanoseconds, and numbers have not.
#[test]
fn a_grant_in_the_first_microsecond_of_a_period_counts() {
    let mut fixture = Fixture::new(LockKind::Fair);
    fixture.now = 1000 * HOUR + Duration::from_nanos(500);
    let token = token_of(fixture.every("a:1", HOUR));
    fixture.release("a:1", token);
    assert_eq!(fixture.every("b:1", HOUR), declined(token));
}

#[test]
fn from_the_first_such_ask_on_any_grant_counts() {
    let mut fixture = Fixture::new(LockKind::Fair);
    let token = token_of(fixture.ask("a:1", Wait::Forever, |_| ()));
    assert!(matches!(fixture.every("b:1", HOUR), Acquired::Busy { .. }));
    fixture.ask("c:1", Wait::Forever, |_| ());
    fixture.release("a:1", token);
    let owner = OwnerId::new("c:1");
    let handed_on = fixture.entry.token_of(&owner, RequestId::new(1), fixture.now).unwrap();
    assert_eq!(fixture.every("b:1", HOUR), declined(handed_on));
}

#[test]
fn a_grant_before_the_first_such_ask_does_not_count() {
    let mut fixture = Fixture::new(LockKind::Fair);
    let token = token_of(fixture.ask("a:1", Wait::Forever, |_| ()));
    fixture.release("a:1", token);
    token_of(fixture.every("b:1", HOUR));
}

/// The grant was in a later hour, by the clock of then.
#[test]
fn after_a_clock_was_set_back_nothing_is_granted_twice() {
    let mut fixture = Fixture::new(LockKind::Fair);
    let token = token_of(fixture.every("a:1", HOUR));
    fixture.release("a:1", token);
    fixture.now -= 5 * HOUR;
    assert_eq!(fixture.every("b:1", HOUR), declined(token));
}

#[test]
fn a_note_lasts_for_two_of_the_longest_period() {
    let mut fixture = Fixture::new(LockKind::Fair);
    assert_eq!(fixture.entry.note_ends(), Duration::ZERO);
    let (start, token) = (fixture.now, token_of(fixture.every("a:1", HOUR)));
    fixture.release("a:1", token);
    assert!(!fixture.entry.is_empty());
    assert_eq!(fixture.entry.note_ends(), start + 2 * HOUR);
    fixture.now += HOUR / 4;
    fixture.every("b:1", HOUR);
    assert_eq!(fixture.entry.note_ends(), start + 2 * HOUR, "a decline");
    fixture.not_within("b:1", 3 * HOUR);
    assert_eq!(fixture.entry.note_ends(), start + 6 * HOUR, "a longer period");
    let token = token_of(fixture.ask("b:1", Wait::No, |_| ()));
    assert_eq!(fixture.entry.note_ends(), start + HOUR / 4 + 6 * HOUR, "a grant");
    let second = Duration::from_secs(1);
    fixture.now += 10 * second;
    assert!(matches!(fixture.not_within("c:1", second), Acquired::Busy { .. }));
    assert_eq!(fixture.entry.note_ends(), fixture.now + 6 * HOUR, "an ask that is not declined");
    assert!(fixture.entry.forget_at(token.get()) > fixture.entry.note_ends());
}

#[test]
fn a_note_is_read_as_written_and_a_state_without_is_as_before() {
    let mut fixture = Fixture::new(LockKind::Fair);
    let plain = fixture.entry.encode();
    let token = token_of(fixture.every("a:1", HOUR));
    fixture.release("a:1", token);
    let bytes = fixture.entry.encode();
    assert_eq!((plain[0], bytes[0]), (1, 2));
    let last = fixture.store_context.last_number();
    fixture.entry = LockEntry::decode(&bytes, last).unwrap();
    assert_eq!(fixture.entry.encode(), bytes);
    assert_eq!(fixture.every("b:1", HOUR), declined(token));
    for damaged in [&bytes[..bytes.len() - 1], &[&bytes[..], &[0]].concat(), &[&[2], &plain[1..]].concat()] {
        assert!(LockEntry::decode(damaged, last).is_err());
    }
    assert_eq!(fixture.entry.after_reboot().note_ends(), fixture.entry.note_ends());
}

/// Its leases go by the time since the machine has started.
#[test]
fn periods_go_by_the_wall_clock_where_the_store_has_another() {
    let mut fixture = Fixture::new(LockKind::Fair);
    fixture.since_1970 = Some(fixture.now);
    fixture.now = HOUR / 4;
    let granted = fixture.since_1970.unwrap();
    let token = token_of(fixture.every("a:1", HOUR));
    fixture.release("a:1", token);
    fixture.now += HOUR;
    assert_eq!(fixture.every("b:1", HOUR), Acquired::Declined(Declined::Granted(granted)));
    fixture.since_1970 = Some(granted + HOUR / 2);
    token_of(fixture.every("b:1", HOUR));
}

#[test]
fn a_period_of_nothing_declines_nothing_but_this_moment() {
    let mut fixture = Fixture::new(LockKind::Fair);
    for _ in 0..2 {
        let token = token_of(fixture.every("a:1", Duration::ZERO));
        fixture.release("a:1", token);
        assert!(matches!(fixture.not_within("b:1", Duration::ZERO), Acquired::Declined(_)));
        fixture.now += Duration::from_secs(1);
    }
}

#[test]
fn a_condition_on_time_is_for_newcomers_that_do_not_wait() {
    let mut fixture = Fixture::new(LockKind::Fair);
    let token = token_of(fixture.every("a:1", HOUR));
    let since = |ask: &mut Acquire<'_>| ask.condition.not_granted = Some(Since::PeriodBegan(HOUR));
    assert!(matches!(fixture.ask("b:1", Wait::Forever, since), Acquired::Queued { .. }));
    assert!(matches!(fixture.ask("b:1", Wait::No, since), Acquired::Busy { .. }));
    fixture.release("a:1", token);
}

#[test]
fn a_newcomer_with_too_many_ahead_gets_no_place() {
    let mut fixture = Fixture::new(LockKind::Fair);
    let token = token_of(fixture.at_most("a:1", 0));
    assert!(matches!(fixture.at_most("b:1", 0), Acquired::Queued { rank: 0, .. }));
    assert_eq!(fixture.at_most("c:1", 0), Acquired::Declined(Declined::Ahead(1)));
    assert!(matches!(fixture.at_most("c:1", 1), Acquired::Queued { rank: 1, .. }));
    assert_eq!(fixture.at_most("d:1", 1), Acquired::Declined(Declined::Ahead(2)));
    assert!(matches!(fixture.at_most("c:1", 0), Acquired::Queued { rank: 1, .. }), "it has a place");
    fixture.release("a:1", token);
    assert_eq!(fixture.entry.heads().count(), 1);
}

#[test]
fn places_that_leave_at_this_turn_are_not_ahead() {
    let mut fixture = Fixture::new(LockKind::Semaphore { permits: 2 });
    let units = |units: u32| move |ask: &mut Acquire<'_>| ask.place.units = units;
    token_of(fixture.ask("a:1", Wait::Forever, units(1)));
    let Acquired::Queued { ticket, .. } = fixture.ask("b:1", Wait::Forever, units(2)) else { panic!() };
    let knows = |ask: &mut Acquire<'_>| (ask.place.units, ask.place.ticket) = (2, ticket);
    fixture.ask("b:1", Wait::Forever, knows);
    let two = |ask: &mut Acquire<'_>| (ask.place.units, ask.condition.most_ahead) = (2, Some(0));
    assert_eq!(fixture.ask("c:1", Wait::Forever, two), Acquired::Declined(Declined::Ahead(1)));
    let mut asks = (0..3).map(|_| {
        fixture.now += Duration::from_secs(9);
        fixture.ask("c:1", Wait::Forever, two)
    });
    assert!(asks.any(|answer| matches!(answer, Acquired::Queued { rank: 0, .. })));
}

#[test]
fn a_plain_lock_has_no_queue_that_could_be_too_long() {
    let mut fixture = Fixture::new(LockKind::Plain);
    token_of(fixture.at_most("a:1", 0));
    for waiter in ["b:1", "c:1"] {
        assert!(matches!(fixture.at_most(waiter, 0), Acquired::Busy { .. }));
    }
}

/// A holder whose process has ended does not count: the ask hears of the last grant.
#[test]
fn a_lock_of_another_kind_declines_only_once_its_holder_is_gone() {
    for gone in ["no client", "a"] {
        let mut fixture = Fixture::new(LockKind::Fair);
        let token = token_of(fixture.every("a:1", HOUR));
        fixture.lock.kind = LockKind::Semaphore { permits: 3 };
        let every = |ask: &mut Acquire<'_>| ask.condition.not_granted = Some(Since::PeriodBegan(HOUR));
        let answer = fixture.ask_after("b:1", Wait::No, every, gone);
        match gone {
            "a" => assert_eq!(answer.unwrap(), declined(token)),
            _ => assert_eq!(answer.unwrap_err().kind(), BackendErrorKind::Mismatch),
        }
    }
}
