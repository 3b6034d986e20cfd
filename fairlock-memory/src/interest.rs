//! The requests that wait for a plain lock. They have no order, and no place.

use std::collections::HashMap;
use std::time::Duration;

use fairlock_core::OwnerId;
use fairlock_core::backend::{Place, RequestId};

use crate::turn::{Moment, SWEEP_AFTER};
use crate::wake_ups::client_of;

/// The requests of one lock that were told "busy", each with the moment until which another heartbeat is due.
#[derive(Default)]
pub(crate) struct Interest {
    requests: HashMap<(OwnerId, RequestId), Moment>,
}

impl Interest {
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// The request was heard: it waits.
    pub(crate) fn refresh(&mut self, place: &Place<'_>, now: Moment) {
        self.requests.insert((place.owner.clone(), place.request), now.saturating_add(place.ttl));
    }

    /// Whether the request waits.
    pub(crate) fn has(&self, place: &Place<'_>) -> bool {
        self.requests.contains_key(&(place.owner.clone(), place.request))
    }

    /// The request waits no more.
    pub(crate) fn remove(&mut self, owner: &OwnerId, request: RequestId) {
        if !self.requests.is_empty() {
            self.requests.remove(&(owner.clone(), request));
        }
    }

    /// One owner of each client to wake. Requests that were silent for too long are removed first.
    pub(crate) fn one_of_each_client(&mut self, now: Moment) -> Vec<OwnerId> {
        self.requests.retain(|_, until| !is_silent(*until, now));
        let mut owners: Vec<OwnerId> = Vec::new();
        for (owner, _) in self.requests.keys() {
            if owners.iter().all(|other| client_of(other) != client_of(owner)) {
                owners.push(owner.clone());
            }
        }
        owners
    }

    /// Whether any request has been heard within its time.
    pub(crate) fn is_present(&self, now: Moment) -> bool {
        self.requests.values().any(|until| now < *until)
    }

    /// Whether all its requests were silent for too long.
    pub(crate) fn is_abandoned(&self, now: Moment) -> bool {
        self.requests.values().all(|until| is_silent(*until, now))
    }
}

fn is_silent(until: Moment, now: Duration) -> bool {
    until.saturating_add(SWEEP_AFTER) <= now
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlock_core::backend::LockId;
    use fairlock_core::{LockKind, LockName};

    #[test]
    fn each_client_is_told_once_and_a_silent_one_is_silent_after_a_minute() {
        let lock = LockId::new(LockName::new("x").unwrap(), LockKind::Plain);
        let mut interest = Interest::default();
        let now = Duration::from_secs(1);
        for (number, owner) in ["a:1", "a:2", "b:1"].into_iter().enumerate() {
            let owner = OwnerId::new(owner);
            interest.refresh(&Place::new(&lock, &owner, RequestId::new(number as u64)), now);
        }
        assert_eq!(interest.one_of_each_client(now).len(), 2);
        let b = OwnerId::new("b:1");
        let later = now + Duration::from_secs(64);
        interest.refresh(&Place::new(&lock, &b, RequestId::new(2)), later);
        assert_eq!(interest.one_of_each_client(later).len(), 2);
        assert_eq!(interest.one_of_each_client(later + Duration::from_secs(1)), [b]);
    }

    #[test]
    fn requests_are_abandoned_a_minute_after_the_last_one_was_over() {
        let lock = LockId::new(LockName::new("x").unwrap(), LockKind::Plain);
        let mut interest = Interest::default();
        for (number, heard) in [(1, 1), (2, 9)] {
            let owner = OwnerId::new("a:1");
            let place = Place::new(&lock, &owner, RequestId::new(number)); // for 5 s
            interest.refresh(&place, Duration::from_secs(heard));
        }
        assert_eq!(
            [66, 73, 74].map(|at| interest.is_abandoned(Duration::from_secs(at))),
            [false, false, true]
        );
    }
}
