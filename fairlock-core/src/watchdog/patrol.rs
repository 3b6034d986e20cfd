//! One round of the watchdog.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::FencingToken;
use crate::LostCause;
use crate::backend::{BackendError, BackendErrorKind, Renew};
use crate::claim::{AfterRenewal, Claim, Duty};
use crate::shared::Shared;
use crate::stats::count;

/// A claim that is due for renewal, and what is asked for it.
struct Due {
    claim: Arc<Claim>,
    hold: Option<(FencingToken, u32)>,
    lease: Duration,
}

impl Shared {
    /// Looks after every claim; returns when to look again. At most one request is asked for and the chores stop
    /// at the first failure, so that renewals are never far behind whatever the server does.
    pub(super) fn patrol(self: &Arc<Self>) -> Option<Instant> {
        let now = self.now();
        let (mut over, mut due, mut ask, mut next) = (Vec::new(), Vec::new(), None, None);
        // A server that is slow or silent holds the whole round up: what would come due meanwhile is taken along, or
        // the locks that other servers keep would lose that time again and again.
        let meanwhile = *self.watchdog.round.lock();
        let limit = self.config.outage_limit;
        self.registry.for_each(|claim| match claim.duty(now, meanwhile, limit, ask.is_none()) {
            Duty::None(at) => next = earlier(next, at),
            Duty::Lose(cause) => over.push((Arc::clone(claim), cause)),
            Duty::Ask => ask = Some(Arc::clone(claim)),
            Duty::RenewPlace => {
                let lease = claim.terms.first_lease();
                due.push(Due { claim: Arc::clone(claim), hold: None, lease });
            }
            Duty::RenewHold { token, count, lease } => {
                due.push(Due { claim: Arc::clone(claim), hold: Some((token, count)), lease });
            }
        });
        for (claim, cause) in over {
            self.lose(&claim, cause);
        }
        let looked_after = !due.is_empty() || ask.is_some();
        let work = || {
            if !due.is_empty() {
                self.renew(&due);
            }
            if let Some(claim) = ask {
                self.ask(&claim, self.now());
            }
            self.do_chores()
        };
        let waits_for_answers = looked_after || self.watchdog.has_chore(now);
        let next_chore = if waits_for_answers { self.with_sentry(work) } else { work() };
        if looked_after {
            // A quick round between slow ones is no sign that the next one is quick: a server that is down is not
            // asked each time.
            *self.watchdog.round.lock() = self.now().saturating_duration_since(now).max(meanwhile / 2);
            return Some(self.now()); // their new deadlines are found by another look
        }
        earlier(next, next_chore)
    }

    /// All in one call. The answers count from before it was sent.
    fn renew(self: &Arc<Self>, due: &[Due]) {
        let items: Vec<Renew<'_>> = due.iter().map(Due::item).collect();
        let sent = self.now();
        let answers = self.backend.renew(self.id, &items);
        let now = self.now();
        let missing = || Err(BackendError::new(BackendErrorKind::Unavailable, "no answer for this item"));
        let mut answers = answers.into_iter();
        for Due { claim, hold, lease } in due {
            let answer = answers.next().unwrap_or_else(missing);
            if let Err(error) = &answer {
                let (lock, owner) = (&claim.lock.name, &claim.owner);
                log::warn!(
                    target: "fairlock::watchdog",
                    event = "not renewed", lock = lock.as_str(), owner = owner.as_str(), error:% = error;
                    "lock {lock}, {owner}: not renewed: {error}"
                );
            }
            match claim.renewed(answer, sent, *lease, now) {
                AfterRenewal::Nothing => {}
                AfterRenewal::Renewed(punctuality) => self.counters.renewed(punctuality),
                AfterRenewal::Granted(by) => self.granted(claim, by),
                AfterRenewal::PlaceLost => {
                    count(&self.counters.places_lost);
                    let (lock, owner) = (&claim.lock.name, &claim.owner);
                    log::warn!(
                        target: "fairlock::watchdog",
                        event = "place lost", lock = lock.as_str(), owner = owner.as_str();
                        "lock {lock}: the place of {owner} was lost, asking again"
                    );
                }
                // It was the place that was lost; its caller asked again meanwhile, and was granted.
                AfterRenewal::HoldLost if hold.is_none() => {}
                AfterRenewal::HoldLost => self.lose(claim, LostCause::Taken),
            }
            claim.renewal_done();
        }
    }
}

impl Due {
    fn item(&self) -> Renew<'_> {
        match self.hold {
            Some((token, holds)) => Renew::Hold { hold: self.claim.hold(token), holds, lease: self.lease },
            None => Renew::Place { place: self.claim.place(), lease: self.lease },
        }
    }
}

pub(super) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    [one, other].into_iter().flatten().min()
}
