//! Grants of which an answer and a message tell, in either order; and grants to requests that this client does not know.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::backend::RequestId;

/// Grants that were found by asking, and messages about grants that came too late. When both name one request, the message
/// was under way while the question was answered, and not lost. Whichever comes second completes the pair.
#[derive(Default)]
pub(super) struct Crossing {
    found: VecDeque<RequestId>,
    told: VecDeque<RequestId>,
    /// Other grants that an answer told of; their messages may come when the hold is already over.
    known: VecDeque<RequestId>,
    /// Grants to requests that this client does not know, and when their release was scheduled.
    returned: VecDeque<(RequestId, Instant)>,
    /// Requests whose holds wait for an adopter: a late message about the grant releases no such hold.
    handed_over: VecDeque<RequestId>,
}

/// How many requests are remembered: a message is late by milliseconds.
const REMEMBERED: usize = 64;
/// How many hand-overs: in an outage a message may be late by seconds.
const HAND_OVERS: usize = 1024;

/// How many unknown grants are released within [`RETURNS_WITHIN`]: each costs a round trip, and messages can be forged.
const MOST_RETURNS: usize = 16;
const RETURNS_WITHIN: Duration = Duration::from_secs(10);

impl Crossing {
    /// A grant was found by asking. True if its message has come meanwhile.
    pub(super) fn found(&mut self, request: RequestId) -> bool {
        let was_told = take(&mut self.told, request);
        if !was_told {
            remember(&mut self.found, REMEMBERED, request);
        }
        was_told
    }

    /// A message tells of a grant to a request that doesn't wait. True if asking has just been quicker.
    pub(super) fn told(&mut self, request: RequestId) -> bool {
        let was_found = take(&mut self.found, request);
        if !was_found {
            remember(&mut self.told, REMEMBERED, request);
        }
        was_found
    }

    pub(super) fn granted_by_answer(&mut self, request: RequestId) {
        remember(&mut self.known, REMEMBERED, request);
    }

    pub(super) fn knew_by_answer(&mut self, request: RequestId) -> bool {
        take(&mut self.known, request)
    }

    pub(super) fn handed_over(&mut self, request: RequestId) {
        remember(&mut self.handed_over, HAND_OVERS, request);
    }

    pub(super) fn was_handed_over(&self, request: RequestId) -> bool {
        self.handed_over.contains(&request)
    }

    /// Each once, and only a few within a time. A flood of such messages must not become a flood of round trips; the rest
    /// out ends with its lease.
    pub(super) fn may_return(&mut self, request: RequestId, now: Instant) -> bool {
        let returned = &mut self.returned;
        let is_recent = |at: Instant| now.saturating_duration_since(at) < RETURNS_WITHIN;
        let is_full = returned.len() == MOST_RETURNS && returned.back().is_some_and(|(_, at)| is_recent(*at));
        if is_full || returned.iter().any(|(other, at)| *other == request && is_recent(*at)) {
            return false;
        }
        returned.truncate(MOST_RETURNS - 1);
        returned.push_front((request, now));
        true
    }
}

fn take(requests: &mut VecDeque<RequestId>, request: RequestId) -> bool {
    let at = requests.iter().position(|other| *other == request);
    at.and_then(|at| requests.remove(at)).is_some()
}

fn remember(requests: &mut VecDeque<RequestId>, most: usize, request: RequestId) {
    requests.truncate(most - 1);
    requests.push_front(request);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_unknown_grants_is_answered_a_few_times_only() {
        let mut crossing = Crossing::default();
        let start = Instant::now();
        assert!(crossing.may_return(RequestId::new(1), start));
        assert!(!crossing.may_return(RequestId::new(1), start), "it is released once");
        let returned = (1..1000).filter(|n| crossing.may_return(RequestId::new(*n), start)).count();
        assert_eq!(returned, MOST_RETURNS - 1);
        let later = start + RETURNS_WITHIN;
        assert!(crossing.may_return(RequestId::new(1), later));
        let returned = (1..1000).filter(|n| crossing.may_return(RequestId::new(*n), later)).count();
        assert_eq!(returned, MOST_RETURNS - 1, "as few as before");
    }

    #[test]
    fn the_latest_requests_are_remembered_so_many_and_each_once() {
        let mut crossing = Crossing::default();
        let most = REMEMBERED as u64;
        (0..=most).for_each(|n| crossing.granted_by_answer(RequestId::new(n)));
        assert!(!crossing.knew_by_answer(RequestId::new(0)), "the oldest is forgotten");
        for n in 1..=most {
            assert!(
                crossing.knew_by_answer(RequestId::new(n)) && !crossing.knew_by_answer(RequestId::new(n))
            );
        }
    }
}
