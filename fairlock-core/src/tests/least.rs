//! A backend that has only what each one must have: what the trait says and does in its place.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use super::store::{LEASE, denied, down, granted, was_granted};
use crate::backend::{
    Acquire, Acquired, Backend, BackendError, BackendErrorKind, ForceReleased, Hold, LockId, LockState,
    Place, Released, Renew, Renewal, RequestId, Subscription, WakeSink, Withdrawn, one_by_one,
};
use crate::{ClientId, FencingToken, LockKind, LockName, OwnerId};

type Answer<T> = Result<T, BackendError>;

/// It answers as it is told, and with `down` when it was told nothing more.
#[derive(Default)]
struct Least {
    acquire: Mutex<VecDeque<Answer<Acquired>>>,
    withdraw: Mutex<VecDeque<Answer<Withdrawn>>>,
    release: Mutex<VecDeque<Answer<Released>>>,
}

fn next<T>(answers: &Mutex<VecDeque<Answer<T>>>) -> Answer<T> {
    answers.lock().pop_front().unwrap_or_else(down)
}

impl Backend for Least {
    fn acquire(&self, asks: &[Acquire<'_>]) -> Vec<Answer<Acquired>> {
        one_by_one(asks, |_| next(&self.acquire))
    }

    fn release(&self, holds: &[Hold<'_>]) -> Vec<Answer<Released>> {
        one_by_one(holds, |_| next(&self.release))
    }

    fn renew(&self, _: ClientId, _: &[Renew<'_>]) -> Vec<Answer<Renewal>> {
        Vec::new()
    }

    fn withdraw(&self, places: &[Place<'_>]) -> Vec<Answer<Withdrawn>> {
        one_by_one(places, |_| next(&self.withdraw))
    }

    fn force_release(&self, _: &LockId) -> Answer<ForceReleased> {
        down()
    }

    fn inspect(&self, _: &LockId, _: Range<u64>) -> Answer<LockState> {
        down()
    }

    fn subscribe(&self, _: ClientId, _: Arc<dyn WakeSink>) -> Answer<Subscription> {
        Ok(Subscription::new(()))
    }
}

fn lock() -> LockId {
    LockId::new(LockName::new("least").unwrap(), LockKind::Fair)
}

#[test]
fn it_keeps_locks_of_one_holder_and_sets_no_limit() {
    let least = Least::default();
    assert!(least.supports(LockKind::Fair) && least.supports(LockKind::Plain));
    assert!(!least.supports(LockKind::ReadWrite) && !least.supports(LockKind::Semaphore { permits: 2 }));
    assert!(!least.keeps_place_by_owner(&lock()));
    assert_eq!((least.response_timeout(), least.attempt_ttl(), least.longest_lease()), (None, None, None));
    assert!(least.store_clock().is_none());
    assert_eq!(least.reconnects(), 0);
}

/// What can be compared of answers.
fn told<T>(answers: impl IntoIterator<Item = Answer<T>>) -> Vec<Result<T, BackendErrorKind>> {
    answers.into_iter().map(|answer| answer.map_err(|error| error.kind())).collect()
}

/// It is asked one question after the other until one has no answer.
#[test]
fn it_is_asked_until_one_question_has_no_answer() {
    let (least, lock, owner) = (Least::default(), lock(), OwnerId::new("ann:1"));
    let places = [1, 2, 3, 4].map(|n| Place::new(&lock, &owner, RequestId::new(n)));
    least.acquire.lock().extend([denied(), granted(7), down(), granted(8)]);
    let acquired = least.acquire(&places.map(|place| Acquire::new(place, LEASE)));
    assert_eq!(told(acquired), told([denied(), granted(7), down(), down()]));
    least.withdraw.lock().extend([denied(), was_granted(7), down(), was_granted(8)]);
    let withdrawn = least.withdraw(&places);
    assert_eq!(told(withdrawn), told([denied(), was_granted(7), down(), down()]));
    let released = || Ok(Released::Released);
    least.release.lock().extend([denied(), released(), down(), released()]);
    let holds = [1, 2, 3, 4].map(|n| Hold::new(&lock, &owner, RequestId::new(n), FencingToken::new(n)));
    assert_eq!(told(least.release(&holds)), told([denied(), released(), down(), down()]));
    let left = [least.acquire.lock().len(), least.withdraw.lock().len(), least.release.lock().len()];
    assert_eq!(left, [1; 3], "the last was not asked");
}

#[test]
fn a_hold_that_an_operator_takes_is_released() {
    let (least, lock, owner) = (Least::default(), lock(), OwnerId::new("ann:1"));
    least.release.lock().extend([Ok(Released::Released), Ok(Released::NotHeld)]);
    let hold = Hold::new(&lock, &owner, RequestId::new(1), FencingToken::new(1));
    assert_eq!(least.take_hold(&hold).unwrap(), ForceReleased::Taken);
    assert_eq!(least.take_hold(&hold).unwrap(), ForceReleased::NotHeld);
    assert!(least.take_hold(&hold).is_err());
}
