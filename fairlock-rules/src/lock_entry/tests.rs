//! Tests of the sole hold, of a grace, and of what a polling waiter finds.

use std::time::Duration;

use fairlock_core::backend::{Acquire, Acquired, Hold, LockId, Place, RequestId, Wait};
use fairlock_core::{LockKind, LockName};

use super::*;
use crate::context::{Presence, StoreContext};

fn entry_with(kind: LockKind, owners: &[&str]) -> LockEntry {
    let lock = LockId::new(LockName::new("x").unwrap(), kind);
    let (mut entry, mut store_context) = (LockEntry::default(), StoreContext::default());
    for owner in owners {
        let owner = OwnerId::new(owner);
        let ask = Acquire::new(Place::new(&lock, &owner, RequestId::new(1)), Duration::from_secs(30));
        let mut context = store_context.operation(&lock.name, Duration::from_secs(1), &|_| Presence::Present);
        entry.acquire(&mut context, &ask).unwrap();
    }
    entry
}

/// The hold of an exclusive lock goes and comes, and the queue stays.
#[test]
fn an_exclusive_hold_goes_and_comes_and_the_queue_stays() {
    let mut entry = entry_with(LockKind::Fair, &["a:1", "b:1", "c:1"]);
    let whole = entry.encode();
    let hold = entry.take_sole_hold_if(|_| true).unwrap();
    assert_eq!((hold.owner.as_str(), hold.units), ("a:1", 1));
    assert!(entry.take_sole_hold_if(|_| true).is_none() && entry.encode() != whole);
    assert!(entry.put_sole_hold(hold.clone(), hold.token.get() - 1).is_err(), "its token would come again");
    assert_eq!(entry.heads().map(OwnerId::as_str).collect::<Vec<_>>(), ["b:1", "c:1"]);
    entry.put_sole_hold(hold.clone(), hold.token.get()).unwrap();
    assert_eq!(entry.encode(), whole);
    assert!(entry.put_sole_hold(hold, u64::MAX).is_err(), "a second hold");
    assert!(entry.take_sole_hold_if(|_| false).is_none() && entry.encode() == whole);
}

/// A store drops a queue that is empty. Tickets of then had their turn, or were given up: nothing was lost.
#[test]
fn a_ticket_of_a_dropped_queue_makes_no_new_one_rest() {
    let lock = LockId::new(LockName::new("x").unwrap(), LockKind::Fair);
    let (request, now) = (RequestId::new(1), Duration::from_secs(1_800_000_000));
    let lease = Duration::from_secs(30);
    let ask = |store_context: &mut StoreContext, entry: &mut LockEntry, owner: &str, ticket| {
        let owner = OwnerId::new(owner);
        let mut ask = Acquire::new(Place::new(&lock, &owner, request), lease);
        ask.place.ticket = ticket;
        entry.acquire(&mut store_context.operation(&lock.name, now, &|_| Presence::Present), &ask).unwrap()
    };
    for is_dropped in [true, false] {
        let (mut entry, mut store_context) = (LockEntry::default(), StoreContext::default());
        ask(&mut store_context, &mut entry, "a:1", 0);
        let Acquired::Queued { ticket, .. } = ask(&mut store_context, &mut entry, "b:1", 0) else { panic!() };
        let b = OwnerId::new("b:1");
        entry.withdraw(
            &mut store_context.operation(&lock.name, now, &|_| Presence::Present),
            &Place::new(&lock, &b, request),
        );
        entry.lose_hold();
        if is_dropped {
            entry = LockEntry::default();
        }
        let rest = if is_dropped { Duration::ZERO } else { Duration::from_secs(5) };
        let Acquired::Queued { recheck_in, .. } = ask(&mut store_context, &mut entry, "b:1", ticket) else {
            panic!()
        };
        assert_eq!(recheck_in, rest);
    }
}

#[test]
fn in_a_grace_nothing_is_granted_and_all_wait_for_its_end() {
    let lock = LockId::new(LockName::new("x").unwrap(), LockKind::Fair);
    let mut entry = entry_with(LockKind::Fair, &["a:1", "b:1"]);
    let token = entry.holds.iter().next().unwrap().token;
    entry.grant_nothing_until(Duration::from_secs(100));
    let (ann, cyn, mut store_context) = (OwnerId::new("a:1"), OwnerId::new("c:1"), StoreContext::default());
    let mut context = store_context.operation(&lock.name, Duration::from_secs(2), &|_| Presence::Present);
    entry.release(&mut context, &Hold::new(&lock, &ann, RequestId::new(1), token));
    let mut ask = Acquire::new(Place::new(&lock, &cyn, RequestId::new(1)), Duration::from_secs(30));
    ask.place.wait = Wait::No;
    let busy = Acquired::Busy { recheck_in: Duration::from_secs(98) };
    assert_eq!(entry.acquire(&mut context, &ask).unwrap(), busy);
    assert!(entry.holds.is_empty());
    let mut context = store_context.operation(&lock.name, Duration::from_secs(100), &|_| Presence::Present);
    assert!(matches!(entry.acquire(&mut context, &ask).unwrap(), Acquired::Busy { .. }));
    assert_eq!(entry.take_sole_hold_if(|_| true).map(|hold| hold.owner), Some(OwnerId::new("b:1")));
}

#[test]
fn a_lock_of_several_holders_has_no_sole_hold() {
    let mut entry = entry_with(LockKind::Semaphore { permits: 3 }, &["a:1"]);
    let whole = entry.encode();
    assert!(entry.take_sole_hold_if(|_| true).is_none() && entry.encode() == whole);
}

/// A waiter that polls finds its hold until the hold ends, and a plain lock that is free.
#[test]
fn a_polling_waiter_finds_its_hold_or_a_free_plain_lock() {
    let (request, [during, after]) = (RequestId::new(1), [2, 31].map(Duration::from_secs));
    for kind in [LockKind::Fair, LockKind::Plain, LockKind::Semaphore { permits: 1 }] {
        let entry = entry_with(kind, &["a:1", "b:1"]);
        let token = |owner, now| entry.token_of(&OwnerId::new(owner), request, now);
        assert!(token("a:1", during).is_some() && token("a:1", after).is_none(), "{kind}");
        assert!(token("b:1", during).is_none(), "{kind}");
        assert!(!entry.is_free_for_plain(during));
        assert_eq!(entry.is_free_for_plain(after), kind == LockKind::Plain);
    }
}
