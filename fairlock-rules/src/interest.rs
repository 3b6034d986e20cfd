//! The requests that wait for a plain lock. They have no order, and no place.

use std::collections::HashMap;

use fairlock_core::OwnerId;
use fairlock_core::backend::{Place, RequestId};

use crate::bytes::{Coded, read_list};
use crate::context::{DEAD_AFTER, Moment};

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
        self.requests.retain(|_, until| now < until.saturating_add(DEAD_AFTER));
        let mut owners: Vec<OwnerId> = Vec::new();
        for (owner, _) in self.requests.keys() {
            if owners.iter().all(|other| other.client() != owner.client()) {
                owners.push(owner.clone());
            }
        }
        owners
    }

    /// Whether any request has been heard within its time.
    pub(crate) fn is_present(&self, now: Moment) -> bool {
        self.requests.values().any(|until| now < *until)
    }

    /// From when on all its requests were silent for too long, if none is heard until then.
    pub(crate) fn over_at(&self) -> Moment {
        self.requests.values().max().map_or(Moment::ZERO, |until| until.saturating_add(DEAD_AFTER))
    }
}

impl Coded for Interest {
    /// In its own order, so that equal states are equal bytes.
    fn write(&self, out: &mut Vec<u8>) {
        let mut requests: Vec<_> = self.requests.iter().collect();
        requests.sort_by_key(|((owner, request), _)| (owner.as_str(), request.get()));
        (requests.len() as u64).write(out);
        for ((owner, request), until) in requests {
            owner.write(out);
            request.write(out);
            until.write(out);
        }
    }

    fn read(from: &mut &[u8]) -> Option<Interest> {
        let mut interest = Interest::default();
        read_list(from, |(request, until)| {
            interest.requests.insert(request, until);
            Some(())
        })?;
        Some(interest)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use fairlock_core::backend::LockId;
    use fairlock_core::{LockKind, LockName};

    /// Each client is told once, and a client that says nothing for a minute is told no more.
    #[test]
    fn each_client_is_told_once_unless_silent_for_a_minute() {
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
        assert_eq!(interest.over_at(), Duration::from_secs(74));
    }
}
