//! How a caller, the watchdog, or a thread for tasks asks for a request, and what follows from the answer.

use std::sync::Arc;
use std::time::Instant;

use super::Parts;
use crate::backend::{Acquired, Answer, BackendError, BackendErrorKind, only, or_missing};
use crate::claim::{AfterAnswer, Claim, GrantedBy};
use crate::ids::LockKind;
use crate::logging::log_line;

/// An ask that is under way. Only one thread asks for a claim at a time, so a backend that panics must not leave the claim
/// without an answer for ever.
struct UnderWay<'a> {
    parts: Parts<'a>,
    claim: &'a Arc<Claim>,
    sent: Instant,
}

impl UnderWay<'_> {
    fn answered(self, answer: Answer<Acquired>) -> Instant {
        let UnderWay { parts, claim, sent } = self;
        std::mem::forget(self);
        match &answer {
            Ok(_) => parts.outage.heard(),
            Err(error) => {
                let (lock, owner) = (&claim.lock.name, &claim.owner);
                log_line!(debug, "fairlock::acquire",
                    event = "no answer", lock = lock.as_str(), owner = owner.as_str(), error:% = error;
                    "asking for lock {lock} failed: {error}"
                );
            }
        }
        parts.take_answer(claim, answer, sent)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let error = BackendError::new(BackendErrorKind::Unavailable, "the backend panicked");
        self.parts.take_answer(self.claim, Err(error), self.sent);
    }
}

impl Parts<'_> {
    /// Asks the server, and does what follows from the answer. `sent`: the time before the ask. Returns the time after it.
    pub(crate) fn ask(self, claim: &Arc<Claim>, sent: Instant) -> Instant {
        let under_way = UnderWay { parts: self, claim, sent };
        let answer = only(self.backend.acquire(&[claim.acquire()]));
        under_way.answered(answer)
    }

    /// The same for many claims, in one call. Returns whether the server is silent: it has answered for none of them. An error that
    /// does not pass is an answer.
    pub(crate) fn ask_all(self, claims: &[Arc<Claim>]) -> bool {
        let Some(sent) = claims.first().map(|claim| claim.config.now()) else { return false };
        let under_way: Vec<_> = claims.iter().map(|claim| UnderWay { parts: self, claim, sent }).collect();
        let asks: Vec<_> = claims.iter().map(|claim| claim.acquire()).collect();
        let answers = self.backend.acquire(&asks);
        let mut is_silent = true;
        for (ask, answer) in under_way.into_iter().zip(or_missing(answers)) {
            is_silent &= answer.as_ref().is_err_and(|error| error.kind().is_transient());
            ask.answered(answer);
        }
        is_silent
    }

    fn take_answer(self, claim: &Arc<Claim>, answer: Answer<Acquired>, sent: Instant) -> Instant {
        let now = claim.config.now();
        let outcome = answer.as_ref().map(Acquired::number).map_err(BackendError::clone);
        let is_first = !claim.was_heard();
        let ahead = match answer {
            Ok(Acquired::Queued { rank, .. }) if is_first => Some(rank),
            _ => None,
        };
        let after = claim.answered(answer, sent, now);
        // A claim that has just become a hold knows its attempt's number.
        if !matches!(after, AfterAnswer::Granted(_)) {
            self.ledger.attempt_ended(claim, outcome, now);
        }
        let ahead = ahead.or((after == AfterAnswer::Granted(GrantedBy::FirstAsk)).then_some(0));
        let ahead = ahead.filter(|_| claim.lock.kind != LockKind::Plain);
        claim.stands_at(ahead); // before its caller hears of a grant
        self.follow(claim, after);
        // Once for each wait: later answers of a slow wait wake no thread.
        if is_first && after == AfterAnswer::Nothing {
            self.timers.slow_by(claim.slow_at());
        }
        if let Some(ahead) = ahead {
            self.ledger.counters.asked(&claim.lock, ahead);
        }
        now
    }

    /// Does what follows from an answer.
    fn follow(self, claim: &Arc<Claim>, after: AfterAnswer) {
        match after {
            AfterAnswer::Nothing => self.timers.due_by(claim.due_at()),
            AfterAnswer::PlaceLost => {
                self.place_lost(claim);
                self.timers.due_by(claim.due_at());
            }
            AfterAnswer::Granted(by) => {
                if by == GrantedBy::WakeUp {
                    self.ledger.counters.granted_by_answer(claim.request);
                }
                return self.ledger.granted(claim, by);
            }
            AfterAnswer::Over => self.ledger.forget(claim),
            AfterAnswer::Unsent => self.ledger.retire(claim), // its cleanup finds nothing to do
            AfterAnswer::Withdraw => self.ledger.withdraw_soon(claim),
            // A request that was dropped is withdrawn later by the thread that runs this. A shutdown withdraws once no thread
            // asks.
            AfterAnswer::Late => {}
        }
        claim.raise();
    }

    /// The server has forgotten the place, and did not put it back.
    fn place_lost(self, claim: &Claim) {
        self.ledger.counters.place_lost(&claim.lock);
        let (lock, owner) = (&claim.lock.name, &claim.owner);
        // Many requests may lose their places at once, and the watchdog has logged that.
        log_line!(debug, "fairlock::acquire",
            event = "place lost", lock = lock.as_str(), owner = owner.as_str();
            "lock {lock}: the place of {owner} was lost, it goes to the tail"
        );
    }
}
